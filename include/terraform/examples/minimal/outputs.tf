output "mwaa_configuration_options" {
  description = "Settings for MWAA."
  value       = module.pdf_ops.mwaa_configuration_options
}

output "airflow_environment" {
  description = "Settings for any other Airflow."
  value       = module.pdf_ops.airflow_environment
}

output "control_plane_policy_arn" {
  description = "To be attached to Airflow's role."
  value       = module.pdf_ops.control_plane_policy_arn
}

output "repository_url" {
  description = "Where the worker's image is pushed to."
  value       = module.pdf_ops.repository_url
}
