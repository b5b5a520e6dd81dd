output "name" {
  description = "Name of the environment."
  value       = aws_mwaa_environment.this.name
}

output "webserver_url" {
  description = "Airflow's UI."
  value       = "https://${aws_mwaa_environment.this.webserver_url}"
}

output "security_group_id" {
  description = "Security group of the environment."
  value       = aws_security_group.this.id
}
