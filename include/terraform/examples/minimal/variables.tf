variable "region" {
  description = "Where everything is."
  type        = string
  default     = "us-east-1"
}

variable "image_tag" {
  description = "Tag of the worker's image."
  type        = string
}
