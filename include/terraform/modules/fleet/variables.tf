variable "account" {
  description = "The account, so that no other one's ECS can take the roles."
  type        = string
}

variable "cluster" {
  description = "The cluster of include/resources.json."
  type        = object({ name = string, capacity_providers = list(string) })
}

variable "family" {
  description = "Family of the task definition; the roles are named after it."
  type        = string
}

variable "cpu" {
  description = "CPU units of a worker; 1024 are one vCPU."
  type        = number
}

variable "memory_mb" {
  description = "Memory of a worker."
  type        = number
}

variable "container_definitions" {
  description = "What the module container makes."
  type        = string
}

variable "policies" {
  description = "What the module permissions makes."
  type        = map(string)
}

variable "log_group" {
  description = "Name of the log group."
  type        = string
}

variable "log_retention_days" {
  description = "Days for which the workers' lines are kept."
  type        = number
}

variable "key_arn" {
  description = "KMS key of the log group."
  type        = string
}

variable "vpc_id" {
  description = "VPC of the workers."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
