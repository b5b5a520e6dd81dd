output "endpoint" {
  description = "Where it is."
  value       = "https://${aws_opensearch_domain.this.endpoint}"
}
