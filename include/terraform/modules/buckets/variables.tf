variable "buckets" {
  description = "Buckets to create, by their keys in include/resources.json."
  type        = map(object({ name = string, versioning = bool }))
}

variable "expirations" {
  description = "Days after which objects below a prefix are removed, by bucket and prefix."
  type        = map(map(number))
  default     = {}
}

variable "old_version_days" {
  description = "Days for which replaced and deleted objects can be brought back."
  type        = number
}

variable "key_arn" {
  description = "KMS key that objects are encrypted with."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
