output "definitions" {
  description = "The container definitions, as JSON."
  value       = jsonencode([local.definition])
}
