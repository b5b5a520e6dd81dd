output "url" {
  description = "What an image's name starts with."
  value       = aws_ecr_repository.this.repository_url
}

output "arn" {
  description = "The repository."
  value       = aws_ecr_repository.this.arn
}
