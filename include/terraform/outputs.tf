output "mwaa_configuration_options" {
  description = "The settings, as MWAA takes them: airflow_configuration_options of an environment that is there already."
  value       = local.configuration_options
}

output "airflow_environment" {
  description = "The same as environment variables, for any other Airflow."
  value = merge(
    { for name, value in local.settings : "AIRFLOW__PDF_OPS__${upper(name)}" => value },
    { for name, value in var.api_settings : "PDF_OPS_${upper(name)}" => value },
  )
}

output "control_plane_policy_arn" {
  description = "What the role of an Airflow that is there already needs: attach it, or set airflow_role_name."
  value       = aws_iam_policy.control_plane.arn
}

output "worker_policy" {
  description = "What a worker outside of ECS needs, as JSON: the workers' own role can be taken by ECS alone."
  value       = module.permissions.policies["worker"]
}

output "repository_url" {
  description = "Where the worker's image is pushed to."
  value       = module.registry.url
}

output "task_definition_arn" {
  description = "The revision of the worker that this configuration describes."
  value       = module.fleet.task_definition_arn
}

output "worker_security_group_id" {
  description = "Security group of the workers."
  value       = module.fleet.security_group_id
}

output "dashboard" {
  description = "Name of the CloudWatch dashboard."
  value       = module.monitoring.dashboard
}

output "mwaa" {
  description = "The MWAA environment, if there is one: its name, its bucket (for `make mwaa-publish`) and its UI."
  value = var.mwaa == null ? null : {
    name          = module.mwaa[0].name
    bucket        = module.buckets.names["mwaa"]
    webserver_url = module.mwaa[0].webserver_url
  }
}

output "search_endpoint" {
  description = "The OpenSearch domain, if there is one."
  value       = one(module.search[*].endpoint)
}
