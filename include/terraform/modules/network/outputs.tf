output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "subnet_ids" {
  description = "The private subnets."
  value       = [for subnet in aws_subnet.private : subnet.id]
}
