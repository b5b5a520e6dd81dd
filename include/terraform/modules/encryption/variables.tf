variable "name" {
  description = "Alias of the key, without alias/."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
