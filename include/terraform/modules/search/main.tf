# An OpenSearch domain that the workers index pages in, and that Airflow searches.

resource "aws_opensearch_domain" "this" {
  #checkov:skip=CKV_AWS_84:Slow and error logs cost more than they tell for an index that can be made again from the dataset
  #checkov:skip=CKV_AWS_317:Audit logs need fine-grained access control, with users besides IAM
  #checkov:skip=CKV2_AWS_52:Access is by IAM roles, in the access policy
  #checkov:skip=CKV2_AWS_59:Three dedicated masters cost more than the data nodes of a small index
  #checkov:skip=CKV_AWS_318:Three dedicated masters cost more than the data nodes of a small index
  domain_name     = var.name
  engine_version  = var.engine_version
  access_policies = data.aws_iam_policy_document.this.json
  tags            = var.tags

  cluster_config {
    instance_type          = var.instance_type
    instance_count         = var.instance_count
    zone_awareness_enabled = var.instance_count > 1

    dynamic "zone_awareness_config" {
      for_each = var.instance_count > 1 ? [2] : []

      content {
        availability_zone_count = zone_awareness_config.value
      }
    }
  }

  ebs_options {
    ebs_enabled = true
    volume_type = "gp3"
    volume_size = var.volume_gib
  }

  encrypt_at_rest {
    enabled    = true
    kms_key_id = var.key_arn
  }

  node_to_node_encryption {
    enabled = true
  }

  domain_endpoint_options {
    enforce_https       = true
    tls_security_policy = "Policy-Min-TLS-1-2-PFS-2023-10"
  }

  software_update_options {
    auto_software_update_enabled = true
  }

  vpc_options {
    subnet_ids         = slice(var.subnet_ids, 0, var.instance_count > 1 ? 2 : 1)
    security_group_ids = [aws_security_group.this.id]
  }
}

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "TheGivenRoles"
    actions   = ["es:ESHttpDelete", "es:ESHttpGet", "es:ESHttpHead", "es:ESHttpPost", "es:ESHttpPut"]
    resources = ["arn:${var.partition}:es:${var.region}:${var.account}:domain/${var.name}/*"]

    principals {
      type        = "AWS"
      identifiers = concat(var.principal_arns, [var.worker_role_arn])
    }
  }
}

resource "aws_security_group" "this" {
  name        = "${var.name}-search"
  description = "OpenSearch: HTTPS from the given groups."
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "https" {
  for_each = toset(var.client_security_group_ids)

  security_group_id            = aws_security_group.this.id
  description                  = "Clients"
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  referenced_security_group_id = each.value
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "workers" {
  security_group_id            = aws_security_group.this.id
  description                  = "Workers"
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  referenced_security_group_id = var.worker_security_group_id
  tags                         = var.tags
}
