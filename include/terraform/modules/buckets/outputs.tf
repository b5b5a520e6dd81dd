output "names" {
  description = "Names of the buckets."
  value       = { for key, bucket in aws_s3_bucket.this : key => bucket.bucket }
}

output "arns" {
  description = "ARNs of the buckets."
  value       = { for key, bucket in aws_s3_bucket.this : key => bucket.arn }
}
