output "cluster" {
  description = "Name of the cluster."
  value       = aws_ecs_cluster.this.name
}

output "family" {
  description = "Family of the task definition: ECS takes its newest revision."
  value       = aws_ecs_task_definition.this.family
}

output "task_definition_arn" {
  description = "The revision that this configuration describes."
  value       = aws_ecs_task_definition.this.arn
}

output "worker_role_arn" {
  description = "Role of the worker's code."
  value       = aws_iam_role.worker.arn
}

output "execution_role_arn" {
  description = "Role with which ECS starts a worker."
  value       = aws_iam_role.execution.arn
}

output "log_group" {
  description = "Name of the log group."
  value       = aws_cloudwatch_log_group.this.name
}

output "log_group_arn" {
  description = "The log group."
  value       = aws_cloudwatch_log_group.this.arn
}

output "security_group_id" {
  description = "Security group of the workers."
  value       = aws_security_group.this.id
}

output "scratch_volume" {
  description = "Name of the task's volume for temporary files."
  value       = local.scratch_volume
}
