variable "name" {
  description = "What everything is named after."
  type        = string
}

variable "cidr_block" {
  description = "Addresses of the VPC."
  type        = string
}

variable "log_retention_days" {
  description = "Days for which refused connections are kept."
  type        = number
}

variable "key_arn" {
  description = "KMS key of the log group."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
