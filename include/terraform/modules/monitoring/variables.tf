variable "name" {
  description = "Name of the dashboard; alarms start with it."
  type        = string
}

variable "region" {
  description = "Where the metrics are."
  type        = string
}

variable "queue_name" {
  description = "The documents' queue."
  type        = string
}

variable "dead_letter_queue_name" {
  description = "Its dead-letter queue."
  type        = string
}

variable "worker" {
  description = "Size of a worker, for its price."
  type        = object({ cpu = number, memory_mb = number })
}

variable "prices_usd" {
  description = "What Fargate costs an hour, on demand."
  type        = object({ vcpu_hour = number, gb_hour = number })
}

variable "topic_arns" {
  description = "SNS topics that alarms go to."
  type        = list(string)
}

variable "max_dead_letters_per_hour" {
  description = "More in an hour are an alarm."
  type        = number
}

variable "max_message_age_s" {
  description = "An older message is an alarm."
  type        = number
}

variable "no_progress_minutes" {
  description = "Documents wait for so long without one being finished: an alarm."
  type        = number
}

variable "max_failure_ratio" {
  description = "A larger share of failed documents in an hour is an alarm."
  type        = number
}

variable "failure_minimum" {
  description = "Finished documents in an hour before that share counts."
  type        = number
}

variable "max_cost_per_day_usd" {
  description = "Workers that cost more in a day are an alarm."
  type        = number
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
