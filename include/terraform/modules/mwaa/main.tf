# An MWAA environment with its execution role and its security group. Its bucket comes from the module buckets.

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["airflow.amazonaws.com", "airflow-env.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "this" {
  name               = "${var.name}-mwaa"
  description        = "What MWAA and the tasks of its DAGs may do."
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "this" {
  for_each = toset(["mwaa", "control_plane"])

  name   = each.value
  role   = aws_iam_role.this.id
  policy = var.policies[each.value]
}

resource "aws_security_group" "this" {
  name        = "${var.name}-mwaa"
  description = "MWAA: its parts among themselves, and anything out."
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "self" {
  security_group_id            = aws_security_group.this.id
  description                  = "Scheduler, workers, web server and database of the environment"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.this.id
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.this.id
  description       = "AWS's endpoints, package index, Slack"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
  tags              = var.tags
}

# An environment is not created without its folder of DAGs.
resource "aws_s3_object" "dags" {
  bucket     = var.bucket
  key        = "dags/"
  content    = ""
  kms_key_id = var.key_arn
  tags       = var.tags
}

resource "aws_mwaa_environment" "this" {
  name                  = var.name
  airflow_version       = var.airflow_version
  environment_class     = var.environment_class
  min_workers           = var.min_workers
  max_workers           = var.max_workers
  execution_role_arn    = aws_iam_role.this.arn
  kms_key               = var.key_arn
  source_bucket_arn     = var.bucket_arn
  webserver_access_mode = var.webserver_access_mode
  tags                  = var.tags

  dag_s3_path                      = "dags"
  requirements_s3_path             = var.bundle == null ? null : "requirements.txt"
  requirements_s3_object_version   = var.bundle == null ? null : var.bundle.requirements_version
  plugins_s3_path                  = var.bundle == null ? null : "plugins.zip"
  plugins_s3_object_version        = var.bundle == null ? null : var.bundle.plugins_version
  startup_script_s3_path           = var.bundle == null ? null : "startup.sh"
  startup_script_s3_object_version = var.bundle == null ? null : var.bundle.startup_version

  airflow_configuration_options = var.configuration_options

  network_configuration {
    security_group_ids = [aws_security_group.this.id]
    subnet_ids         = slice(var.subnet_ids, 0, 2)
  }

  logging_configuration {
    dag_processing_logs {
      enabled   = true
      log_level = "WARNING"
    }

    scheduler_logs {
      enabled   = true
      log_level = "WARNING"
    }

    task_logs {
      enabled   = true
      log_level = "INFO"
    }

    webserver_logs {
      enabled   = true
      log_level = "WARNING"
    }

    worker_logs {
      enabled   = true
      log_level = "WARNING"
    }
  }

  # Without its permissions the environment does not come up.
  depends_on = [aws_iam_role_policy.this, aws_s3_object.dags]
}
