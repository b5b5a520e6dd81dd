output "names" {
  description = "Names of the tables."
  value       = { for key, table in aws_dynamodb_table.this : key => table.name }
}

output "arns" {
  description = "ARNs of the tables."
  value       = { for key, table in aws_dynamodb_table.this : key => table.arn }
}
