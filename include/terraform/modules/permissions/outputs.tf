output "policies" {
  description = "A policy document for each role, as JSON."
  value       = { for role, policy in local.policies : role => jsonencode(policy) }
}
