variable "name" {
  description = "Name of the repository."
  type        = string
}

variable "kept_images" {
  description = "Images to keep."
  type        = number
  default     = 20
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
