# The state and the runs table, paid per request, with a copy of every second of the last 35 days.

resource "aws_dynamodb_table" "this" {
  #checkov:skip=CKV_AWS_119:Encrypted with DynamoDB's own key: it holds names and counters, no text, and a key of ours would put KMS between a worker and its commit
  for_each = var.tables

  name                        = each.value.name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = each.value.hash_key
  range_key                   = each.value.range_key
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  dynamic "attribute" {
    for_each = toset(compact(concat(
      [each.value.hash_key, each.value.range_key],
      flatten([for index in each.value.indexes : [index.hash_key, index.range_key]]),
    )))

    content {
      name = attribute.value
      type = "S"
    }
  }

  dynamic "global_secondary_index" {
    for_each = each.value.indexes

    content {
      name               = global_secondary_index.key
      hash_key           = global_secondary_index.value.hash_key
      range_key          = global_secondary_index.value.range_key
      projection_type    = "INCLUDE"
      non_key_attributes = global_secondary_index.value.attributes
    }
  }

  dynamic "ttl" {
    for_each = each.value.ttl_attribute == null ? [] : [each.value.ttl_attribute]

    content {
      enabled        = true
      attribute_name = ttl.value
    }
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = false
  }
}
