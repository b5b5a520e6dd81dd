variable "name" {
  description = "Name of the environment."
  type        = string
}

variable "airflow_version" {
  description = "Airflow's version."
  type        = string
}

variable "environment_class" {
  description = "Size of the environment."
  type        = string
}

variable "min_workers" {
  description = "Fewest Airflow workers."
  type        = number
}

variable "max_workers" {
  description = "Most Airflow workers."
  type        = number
}

variable "webserver_access_mode" {
  description = "PUBLIC_ONLY or PRIVATE_ONLY."
  type        = string
}

variable "bundle" {
  description = "Versions of what `make mwaa-publish` uploaded; null before the first time."
  type = object({
    plugins_version      = string
    requirements_version = string
    startup_version      = string
  })
}

variable "configuration_options" {
  description = "Settings of pdf_ops, as configuration options."
  type        = map(string)
}

variable "bucket" {
  description = "Name of the bucket of the bundle."
  type        = string
}

variable "bucket_arn" {
  description = "The same bucket."
  type        = string
}

variable "policies" {
  description = "What the module permissions makes."
  type        = map(string)
}

variable "vpc_id" {
  description = "VPC of the environment."
  type        = string
}

variable "subnet_ids" {
  description = "Two private subnets in two zones."
  type        = list(string)
}

variable "key_arn" {
  description = "KMS key of the environment and of its bucket."
  type        = string
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
