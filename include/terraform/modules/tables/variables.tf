variable "tables" {
  description = "Tables by their keys in include/resources.json; their keys are strings."
  type = map(object({
    name          = string
    hash_key      = string
    range_key     = optional(string)
    ttl_attribute = optional(string)
    indexes = optional(map(object({
      hash_key   = string
      range_key  = string
      attributes = list(string)
    })), {})
  }))
}

variable "deletion_protection" {
  description = "Whether the tables refuse to be deleted."
  type        = bool
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
