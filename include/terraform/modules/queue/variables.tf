variable "queues" {
  description = "Queues by their keys in include/resources.json; one with a dead-letter queue names it by its key."
  type = map(object({
    name                 = string
    visibility_timeout_s = number
    receive_wait_s       = number
    retention_s          = number
    max_receive_count    = optional(number)
    dead_letter_queue    = optional(string)
  }))

  validation {
    condition = alltrue([
      for queue in values(var.queues) : queue.dead_letter_queue == null ? true : (
        var.queues[queue.dead_letter_queue].retention_s > queue.retention_s
      )
    ])
    error_message = "A dead-letter queue must keep messages longer than its queue: they keep their first date."
  }
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
}
