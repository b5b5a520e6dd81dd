output "key_arn" {
  description = "The key."
  value       = aws_kms_key.this.arn
}
