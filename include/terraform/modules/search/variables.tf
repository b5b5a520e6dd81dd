variable "name" {
  description = "Name of the domain."
  type        = string
}

variable "engine_version" {
  description = "Version of OpenSearch."
  type        = string
}

variable "instance_type" {
  description = "Type of the data nodes."
  type        = string
}

variable "instance_count" {
  description = "Number of data nodes; with two or more they are in two zones."
  type        = number
}

variable "volume_gib" {
  description = "Disk of each."
  type        = number
}

variable "principal_arns" {
  description = "Roles that may read and write."
  type        = list(string)
}

variable "worker_role_arn" {
  description = "Role of the workers, which write."
  type        = string
}

variable "worker_security_group_id" {
  description = "Security group of the workers."
  type        = string
}

variable "client_security_group_ids" {
  description = "Security groups that may connect."
  type        = list(string)
}

variable "partition" {
  description = "Partition, such as aws."
  type        = string
}

variable "region" {
  description = "Region."
  type        = string
}

variable "account" {
  description = "Account."
  type        = string
}

variable "vpc_id" {
  description = "VPC of the domain."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the domain."
  type        = list(string)
}

variable "key_arn" {
  description = "KMS key of its disks."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
