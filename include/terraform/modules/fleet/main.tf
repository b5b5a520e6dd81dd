# Where workers run: the cluster, what a worker is, its roles, its log and its network rules.

locals {
  scratch_volume = "scratch"
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [var.account]
    }
  }
}

resource "aws_iam_role" "worker" {
  name               = "${var.family}-task"
  description        = "What the worker's code may do."
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "worker" {
  name   = "worker"
  role   = aws_iam_role.worker.id
  policy = var.policies["worker"]
}

resource "aws_iam_role" "execution" {
  name               = "${var.family}-execution"
  description        = "What ECS does to start a worker: pull its image, write its log, read its secrets."
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = var.tags
}

resource "aws_iam_role_policy" "execution" {
  name   = "execution"
  role   = aws_iam_role.execution.id
  policy = var.policies["execution"]
}

resource "aws_cloudwatch_log_group" "this" {
  #checkov:skip=CKV_AWS_338:A run's report keeps what matters; a year of workers' lines only costs
  name              = var.log_group
  retention_in_days = var.log_retention_days
  kms_key_id        = var.key_arn
  tags              = var.tags
}

resource "aws_ecs_cluster" "this" {
  name = var.cluster.name
  tags = var.tags

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_ecs_cluster_capacity_providers" "this" {
  cluster_name       = aws_ecs_cluster.this.name
  capacity_providers = var.cluster.capacity_providers
}

resource "aws_ecs_task_definition" "this" {
  family                   = var.family
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.cpu
  memory                   = var.memory_mb
  task_role_arn            = aws_iam_role.worker.arn
  execution_role_arn       = aws_iam_role.execution.arn
  container_definitions    = var.container_definitions
  tags                     = var.tags

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = "X86_64"
  }

  volume {
    name = local.scratch_volume
  }
}

resource "aws_security_group" "this" {
  #checkov:skip=CKV2_AWS_5:The group is given to each task by the DAG, as setting ecs_security_groups
  name        = "${var.family}-tasks"
  description = "Workers: nothing comes in, HTTPS goes out."
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.this.id
  description       = "AWS's endpoints"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = "0.0.0.0/0"
  tags              = var.tags
}
