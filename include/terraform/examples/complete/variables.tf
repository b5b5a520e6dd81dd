variable "region" {
  description = "Where everything is."
  type        = string
  default     = "eu-central-1"
}

variable "image_tag" {
  description = "Tag of the worker's image."
  type        = string
}

variable "input_bucket_name" {
  description = "Bucket that the documents are in."
  type        = string
}

variable "input_key_arn" {
  description = "Its KMS key."
  type        = string
}

variable "password_secret_arn" {
  description = "Secret with the password of encrypted documents."
  type        = string
}

variable "alarm_topic_arn" {
  description = "SNS topic for alarms."
  type        = string
}

variable "search_role_arn" {
  description = "Role that fills and asks the index."
  type        = string
}

variable "search_security_group_id" {
  description = "Security group of whoever does that."
  type        = string
}

variable "bundle" {
  description = "What `make mwaa-publish` printed; null before the first time."
  type = object({
    plugins_version      = string
    requirements_version = string
    startup_version      = string
  })
  default = null
}
