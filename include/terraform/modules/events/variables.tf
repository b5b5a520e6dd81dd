variable "account" {
  description = "Whose bucket it is."
  type        = string
}

variable "bucket" {
  description = "Name of the input bucket. Its notifications are replaced as a whole."
  type        = string
}

variable "bucket_arn" {
  description = "The input bucket."
  type        = string
}

variable "queue_arn" {
  description = "The queue that is told."
  type        = string
}

variable "queue_url" {
  description = "Its URL."
  type        = string
}

variable "prefix" {
  description = "Only keys below it."
  type        = string
}

variable "suffixes" {
  description = "Only keys that end like this; S3 tells capital letters apart."
  type        = list(string)
}
