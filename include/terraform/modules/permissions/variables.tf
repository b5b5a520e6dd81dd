variable "file" {
  description = "include/permissions.json."
  type        = string
}

variable "names" {
  description = "Values of the file's variables; several ARNs are separated by commas."
  type        = map(string)
}
