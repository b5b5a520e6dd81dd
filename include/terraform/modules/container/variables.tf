variable "container" {
  description = "The container of include/resources.json."
  type        = any
}

variable "image" {
  description = "The worker's image, with its tag."
  type        = string
}

variable "region" {
  description = "Where it runs."
  type        = string
}

variable "buckets" {
  description = "Names of the buckets, by their keys."
  type        = map(string)
}

variable "queue_urls" {
  description = "URLs of the queues, by their keys."
  type        = map(string)
}

variable "tables" {
  description = "Names of the tables, by their keys."
  type        = map(string)
}

variable "log_group" {
  description = "Name of the log group."
  type        = string
}

variable "scratch_volume" {
  description = "Name of the task's volume for temporary files."
  type        = string
}

variable "environment" {
  description = "Further settings of the worker."
  type        = map(string)
}

variable "secrets" {
  description = "Settings that come from Secrets Manager: ARN, or ARN:key::, by variable."
  type        = map(string)
}
