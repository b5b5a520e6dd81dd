locals {
  all = merge(aws_sqs_queue.this, aws_sqs_queue.dead_letters)
}

output "urls" {
  description = "URLs of the queues."
  value       = { for key, queue in local.all : key => queue.url }
}

output "arns" {
  description = "ARNs of the queues."
  value       = { for key, queue in local.all : key => queue.arn }
}

output "names" {
  description = "Names of the queues."
  value       = { for key, queue in local.all : key => queue.name }
}
