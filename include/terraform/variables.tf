# --- what it is called ---

variable "name_prefix" {
  description = "What every name starts with, such as dev-; a second deployment in an account needs another one."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([a-z][a-z0-9-]{0,11}-)?$", var.name_prefix))
    error_message = "Accepted: nothing, or lower-case letters, digits and hyphens that start with a letter and end with a hyphen, 13 at most."
  }
}

variable "tags" {
  description = "Tags of everything, besides project = pdf_ops."
  type        = map(string)
  default     = {}
}

# --- documents and rows ---

variable "input_bucket_name" {
  description = "Bucket that the documents are in already; null creates one."
  type        = string
  default     = null

  validation {
    condition     = var.input_bucket_name == null ? true : can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.input_bucket_name))
    error_message = "Accepted: the name of a bucket, without s3://."
  }
}

variable "input_key_arn" {
  description = "KMS key of that bucket, if it is encrypted with one."
  type        = string
  default     = null

  validation {
    condition     = var.input_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/", var.input_key_arn))
    error_message = "Accepted: the ARN of a key, not of an alias."
  }
}

variable "input_prefix" {
  description = "Only documents below it are read."
  type        = string
  default     = ""

  validation {
    condition     = !startswith(var.input_prefix, "/")
    error_message = "A prefix starts without a slash."
  }
}

variable "page_file_days" {
  description = "Days for which each document's own file of rows is kept; the dataset has them all once a run has ended."
  type        = number
  default     = 30

  validation {
    condition     = var.page_file_days >= 7
    error_message = "At least 7: a run may take days, and its merge reads these files."
  }
}

variable "run_file_days" {
  description = "Days for which a run's listing, manifest and report are kept."
  type        = number
  default     = 365

  validation {
    condition     = var.run_file_days >= 30
    error_message = "At least 30."
  }
}

variable "old_version_days" {
  description = "Days for which replaced and deleted objects can be brought back."
  type        = number
  default     = 30

  validation {
    condition     = var.old_version_days >= 1
    error_message = "At least 1."
  }
}

variable "deletion_protection" {
  description = "Whether the tables refuse to be deleted."
  type        = bool
  default     = true
}

variable "key_arn" {
  description = "KMS key for buckets and logs; null creates one. Its policy must let CloudWatch Logs use it, and MWAA where that is wanted."
  type        = string
  default     = null

  validation {
    condition     = var.key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/", var.key_arn))
    error_message = "Accepted: the ARN of a key, not of an alias."
  }
}

# --- workers ---

variable "image_tag" {
  description = "Tag of the worker's image, as `make image` and a release name it."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", var.image_tag)) && var.image_tag != "latest"
    error_message = "Accepted: the tag of a release, such as 0.1.0; not latest, which would mean another image tomorrow."
  }
}

variable "worker_cpu" {
  description = "CPU units of a worker, 1024 for a vCPU; null takes those of ../resources.json. The worker reads one page per vCPU at a time."
  type        = number
  default     = null

  validation {
    condition     = var.worker_cpu == null ? true : contains([1024, 2048, 4096, 8192, 16384], var.worker_cpu)
    error_message = "Accepted: 1024, 2048, 4096, 8192, 16384."
  }
}

variable "worker_memory_mb" {
  description = "Memory of a worker, 2 to 8 GB for each vCPU; null takes that of ../resources.json."
  type        = number
  default     = null

  validation {
    condition     = var.worker_memory_mb == null ? true : var.worker_memory_mb >= 2048 && var.worker_memory_mb % 1024 == 0
    error_message = "Accepted: 2048 or more, in steps of 1024."
  }
}

variable "worker_environment" {
  description = "Further settings of the worker, by variable; see docs/settings.md."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.worker_environment), "OCR_PASSWORD")
    error_message = "A password belongs into worker_secrets."
  }
}

variable "worker_secrets" {
  description = "Settings of the worker that are in Secrets Manager, encrypted with its own key: ARN, or ARN:key::, by variable. OCR_PASSWORD is one."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for arn in values(var.worker_secrets) : can(regex("^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[^,]+$", arn))])
    error_message = "Accepted: ARNs of secrets, with the six characters at their end."
  }
}

variable "network" {
  description = "VPC and subnets that are there already; null creates a VPC with a NAT gateway. In public subnets workers need public addresses. MWAA needs two private ones."
  type = object({
    vpc_id           = string
    subnet_ids       = list(string)
    assign_public_ip = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.network == null ? true : length(var.network.subnet_ids) > 0
    error_message = "At least one subnet."
  }
}

variable "cidr_block" {
  description = "Addresses of the VPC that is created; a /16 to /20."
  type        = string
  default     = "10.42.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.cidr_block, 8, 255)) && tonumber(split("/", var.cidr_block)[1]) >= 16 && tonumber(split("/", var.cidr_block)[1]) <= 20
    error_message = "Accepted: such as 10.42.0.0/16."
  }
}

# --- alarms ---

variable "alarm_topic_arns" {
  description = "SNS topics that alarms go to; without one they only show in the console."
  type        = list(string)
  default     = []
}

variable "max_dead_letters_per_hour" {
  description = "More documents that fail for good in an hour are an alarm."
  type        = number
  default     = 100
}

variable "max_message_age_s" {
  description = "A message that waits for longer is an alarm; well below the queue's retention of four days."
  type        = number
  default     = 86400

  validation {
    condition     = var.max_message_age_s > 0 && var.max_message_age_s < 345600
    error_message = "Accepted: below 345600, the queue's retention: what is older is gone."
  }
}

variable "no_progress_minutes" {
  description = "Documents wait for so long without one being finished: an alarm."
  type        = number
  default     = 60

  validation {
    condition     = var.no_progress_minutes >= 10 && var.no_progress_minutes % 5 == 0
    error_message = "Accepted: 10 or more, in steps of 5."
  }
}

variable "max_failure_ratio" {
  description = "A larger share of failed documents in an hour is an alarm."
  type        = number
  default     = 0.2

  validation {
    condition     = var.max_failure_ratio >= 0 && var.max_failure_ratio < 1
    error_message = "Accepted: from 0 to below 1."
  }
}

variable "failure_minimum" {
  description = "Finished documents in an hour before that share counts."
  type        = number
  default     = 20
}

variable "max_cost_per_day_usd" {
  description = "Workers that cost more in a day, at on-demand prices, are an alarm."
  type        = number
  default     = 100

  validation {
    condition     = var.max_cost_per_day_usd > 0
    error_message = "More than nothing."
  }
}

variable "prices_usd" {
  description = "What Fargate costs an hour on demand; the default is Linux on x86 in us-east-1."
  type        = object({ vcpu_hour = number, gb_hour = number })
  default     = { vcpu_hour = 0.04048, gb_hour = 0.004445 }
}

# --- what is optional ---

variable "sends_events" {
  description = "Whether S3 sends each new document to the queue, for workers that run all the time. Replaces all notifications of the input bucket."
  type        = bool
  default     = false
}

variable "rings_doorbell" {
  description = "Whether S3 tells a queue of its own about each new document, so that the DAG pdf_doorbell starts a run at once. Replaces all notifications of the input bucket; not together with sends_events."
  type        = bool
  default     = false

  validation {
    condition     = !(var.rings_doorbell && var.sends_events)
    error_message = "S3 sends an event to one queue: either sends_events, for workers that run all the time, or rings_doorbell, for runs."
  }
}

variable "event_suffixes" {
  description = "Only keys that end like this are sent by S3, which tells capital letters apart."
  type        = list(string)
  default     = [".pdf", ".PDF"]
}

variable "search" {
  description = "An OpenSearch domain that the workers index pages in, for the given roles and security groups besides theirs: Airflow's, which searches, and others; null for none."
  type = object({
    principal_arns            = list(string)
    client_security_group_ids = optional(list(string), [])
    engine_version            = optional(string, "OpenSearch_2.19")
    instance_type             = optional(string, "r7g.large.search")
    instance_count            = optional(number, 2)
    volume_gib                = optional(number, 100)
  })
  default = null

  validation {
    condition     = var.search == null ? true : length(var.search.principal_arns) > 0
    error_message = "At least one role: a domain that nobody may use only costs."
  }
}

variable "mwaa" {
  description = "An MWAA environment; null for none. The bundle's versions are what `make mwaa-publish` prints: without them, a first apply creates the bucket and an empty environment."
  type = object({
    airflow_version       = optional(string, "3.3.1")
    environment_class     = optional(string, "mw1.small")
    min_workers           = optional(number, 1)
    max_workers           = optional(number, 5)
    webserver_access_mode = optional(string, "PUBLIC_ONLY")
    bundle = optional(object({
      plugins_version      = string
      requirements_version = string
      startup_version      = string
    }))
  })
  default = null

  validation {
    condition     = var.mwaa == null ? true : contains(["3.2.1", "3.3.1"], var.mwaa.airflow_version)
    error_message = "Accepted: 3.2.1 and 3.3.1, which pdf_ops is tested with."
  }

  validation {
    condition     = var.mwaa == null ? true : contains(["PUBLIC_ONLY", "PRIVATE_ONLY"], var.mwaa.webserver_access_mode)
    error_message = "Accepted: PUBLIC_ONLY, PRIVATE_ONLY."
  }
}

variable "airflow_role_name" {
  description = "Role of an Airflow that is there already: it gets the control plane's permissions."
  type        = string
  default     = null
}

variable "airflow_settings" {
  description = "Further settings of the control plane, by their names in docs/settings.md, such as schedule or slack_conn_id."
  type        = map(string)
  default     = {}
}

variable "api_settings" {
  description = "Settings of the REST API in Airflow, by their variables in docs/settings.md without PDF_OPS_ and in lower case, such as max_upload_mb."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.api_settings) : can(regex("^[a-z][a-z0-9_]*$", name))])
    error_message = "Accepted: names in lower case, such as max_upload_mb."
  }
}
