# What pdf_ops needs in AWS. Names, queues, tables and the worker come from ../resources.json, from which the
# local AWS is made, too; the roles' permissions from ../permissions.json, which a test proves.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  resources = jsondecode(file("${path.module}/../resources.json"))
  container = local.resources.task_definition.container

  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region

  name = "${var.name_prefix}${local.resources.cluster.name}"
  tags = merge({ project = "pdf_ops" }, var.tags)

  # The names of buckets are taken world-wide.
  bucket_suffix = "${local.account}-${local.region}"
  buckets = {
    for key, bucket in local.resources.buckets : key => {
      name       = "${var.name_prefix}${bucket.name}-${local.bucket_suffix}"
      versioning = bucket.versioning
    } if key != "input" || var.input_bucket_name == null
  }
  mwaa_bucket = var.mwaa == null ? {} : {
    mwaa = { name = "${local.name}-mwaa-${local.bucket_suffix}", versioning = true }
  }
  queues = {
    for key, queue in local.resources.queues : key => merge(queue, { name = "${var.name_prefix}${queue.name}" })
    if key != "events" || var.rings_doorbell
  }
  tables    = { for key, table in local.resources.tables : key => merge(table, { name = "${var.name_prefix}${table.name}" }) }
  log_group = local.resources.log_groups[local.container.log_group]

  output_prefix   = local.container.environment.OUTPUT_S3_PREFIX.value
  manifest_prefix = local.container.environment.MANIFEST_S3_KEY.value

  worker = {
    cpu       = coalesce(var.worker_cpu, local.resources.task_definition.cpu)
    memory_mb = coalesce(var.worker_memory_mb, local.resources.task_definition.memory_mb)
  }

  bucket_names = merge(module.buckets.names, var.input_bucket_name == null ? {} : { input = var.input_bucket_name })
  bucket_arns  = { for key, name in local.bucket_names : key => "arn:${local.partition}:s3:::${name}" }
  key_arn      = var.key_arn == null ? one(module.encryption[*].key_arn) : var.key_arn
  vpc_id       = var.network == null ? one(module.network[*].vpc_id) : var.network.vpc_id
  subnet_ids   = var.network == null ? one(module.network[*].subnet_ids) : var.network.subnet_ids

  # What Airflow must know: settings of plugins/pdf_ops/settings.py. A task definition is given by its family,
  # so that Airflow, which takes half an hour to change its configuration on MWAA, need not know of a new image.
  own_settings = {
    input_s3_bucket        = local.bucket_names["input"]
    input_s3_prefix        = var.input_prefix
    output_s3_bucket       = local.bucket_names["output"]
    output_s3_prefix       = local.output_prefix
    manifest_s3_bucket     = local.bucket_names["manifest"]
    manifest_s3_key        = local.manifest_prefix
    sqs_queue_url          = module.queue.urls["documents"]
    dlq_sqs_queue_url      = module.queue.urls["dead_letters"]
    events_sqs_queue_url   = try(module.queue.urls["events"], "")
    dynamo_table_name      = module.tables.names["state"]
    dynamo_runs_table_name = module.tables.names["runs"]
    ecs_cluster            = module.fleet.cluster
    ecs_task_definition    = module.fleet.family
    ecs_container_name     = local.container.name
    ecs_subnets            = join(",", local.subnet_ids)
    ecs_security_groups    = module.fleet.security_group_id
    assign_public_ip       = var.network == null ? "false" : tostring(var.network.assign_public_ip)
    log_group_name         = module.fleet.log_group
    log_stream_prefix      = local.container.log_stream_prefix
    aws_region             = local.region
    opensearch_url         = var.search == null ? "" : module.search[0].endpoint
  }
  settings = merge(local.own_settings, var.airflow_settings)
  # MWAA refuses options without a value; without one, the setting's default holds.
  configuration_options = merge(
    { for name, value in local.settings : "pdf_ops.${name}" => value if value != "" },
    { for name, value in var.api_settings : "pdf_ops_api.${name}" => value if value != "" },
  )
}

module "encryption" {
  source = "./modules/encryption"
  count  = var.key_arn == null ? 1 : 0

  name = local.name
  tags = local.tags
}

module "buckets" {
  source = "./modules/buckets"

  buckets          = merge(local.buckets, local.mwaa_bucket)
  key_arn          = local.key_arn
  old_version_days = var.old_version_days
  tags             = local.tags

  expirations = {
    # Staged files are removed when they are published; these are of runs that never were.
    output = {
      "${local.output_prefix}by_document/" = var.page_file_days
      "${local.output_prefix}staged/"      = var.page_file_days
    }
    manifest = { "${local.manifest_prefix}runs/" = var.run_file_days }
  }
}

module "queue" {
  source = "./modules/queue"

  queues = local.queues
  tags   = local.tags
}

module "tables" {
  source = "./modules/tables"

  tables              = local.tables
  deletion_protection = var.deletion_protection
  tags                = local.tags
}

module "registry" {
  source = "./modules/registry"

  name = "${var.name_prefix}${local.container.image}"
  tags = local.tags
}

module "network" {
  source = "./modules/network"
  count  = var.network == null ? 1 : 0

  name               = local.name
  cidr_block         = var.cidr_block
  log_retention_days = local.log_group.retention_days
  key_arn            = local.key_arn
  tags               = local.tags
}

module "container" {
  source = "./modules/container"

  container      = local.container
  image          = "${module.registry.url}:${var.image_tag}"
  region         = local.region
  buckets        = local.bucket_names
  queue_urls     = module.queue.urls
  tables         = module.tables.names
  log_group      = module.fleet.log_group
  scratch_volume = module.fleet.scratch_volume
  environment    = var.worker_environment
  secrets        = var.worker_secrets
}

module "permissions" {
  source = "./modules/permissions"

  file = "${path.module}/../permissions.json"
  names = {
    partition           = local.partition
    region              = local.region
    account             = local.account
    input_bucket_arn    = local.bucket_arns["input"]
    output_bucket_arn   = local.bucket_arns["output"]
    output_prefix       = local.output_prefix
    manifest_bucket_arn = local.bucket_arns["manifest"]
    manifest_prefix     = local.manifest_prefix
    queue_arn           = module.queue.arns["documents"]
    dead_letters_arn    = module.queue.arns["dead_letters"]
    events_arn          = try(module.queue.arns["events"], "")
    state_table_arn     = module.tables.arns["state"]
    runs_table_arn      = module.tables.arns["runs"]
    cluster             = module.fleet.cluster
    # Not the definition's own: the policy must be there before the first one, and hold for each later one.
    task_family        = local.task_family
    worker_role_arn    = module.fleet.worker_role_arn
    execution_role_arn = module.fleet.execution_role_arn
    log_group_arn      = module.fleet.log_group_arn
    repository_arn     = module.registry.arn
    # ARN:key:: is one value of a secret; the permission is for the secret.
    secret_arns      = join(",", distinct([for arn in values(var.worker_secrets) : join(":", slice(split(":", arn), 0, 7))]))
    key_arns         = join(",", compact([local.key_arn, var.input_key_arn]))
    mwaa_bucket_arn  = try(module.buckets.arns["mwaa"], "")
    mwaa_environment = local.name
  }
}

locals {
  task_family = "${var.name_prefix}${local.resources.task_definition.family}"
}

module "fleet" {
  source = "./modules/fleet"

  account               = local.account
  cluster               = { name = local.name, capacity_providers = local.resources.cluster.capacity_providers }
  family                = local.task_family
  cpu                   = local.worker.cpu
  memory_mb             = local.worker.memory_mb
  container_definitions = module.container.definitions
  policies              = module.permissions.policies
  log_group             = "/${var.name_prefix}${trimprefix(local.log_group.name, "/")}"
  log_retention_days    = local.log_group.retention_days
  key_arn               = local.key_arn
  vpc_id                = local.vpc_id
  tags                  = local.tags
}

module "monitoring" {
  source = "./modules/monitoring"

  name                      = local.name
  region                    = local.region
  queue_name                = module.queue.names["documents"]
  dead_letter_queue_name    = module.queue.names["dead_letters"]
  worker                    = local.worker
  prices_usd                = var.prices_usd
  topic_arns                = var.alarm_topic_arns
  max_dead_letters_per_hour = var.max_dead_letters_per_hour
  max_message_age_s         = var.max_message_age_s
  no_progress_minutes       = var.no_progress_minutes
  max_failure_ratio         = var.max_failure_ratio
  failure_minimum           = var.failure_minimum
  max_cost_per_day_usd      = var.max_cost_per_day_usd
  tags                      = local.tags
}

module "events" {
  source = "./modules/events"
  count  = var.sends_events || var.rings_doorbell ? 1 : 0

  account    = local.account
  bucket     = local.bucket_names["input"]
  bucket_arn = local.bucket_arns["input"]
  queue_arn  = module.queue.arns[var.rings_doorbell ? "events" : "documents"]
  queue_url  = module.queue.urls[var.rings_doorbell ? "events" : "documents"]
  prefix     = var.input_prefix
  suffixes   = var.event_suffixes
}

module "search" {
  source = "./modules/search"
  count  = var.search == null ? 0 : 1

  name                      = local.name
  engine_version            = var.search.engine_version
  instance_type             = var.search.instance_type
  instance_count            = var.search.instance_count
  volume_gib                = var.search.volume_gib
  principal_arns            = var.search.principal_arns
  client_security_group_ids = var.search.client_security_group_ids
  worker_role_arn           = module.fleet.worker_role_arn
  worker_security_group_id  = module.fleet.security_group_id
  partition                 = local.partition
  region                    = local.region
  account                   = local.account
  vpc_id                    = local.vpc_id
  subnet_ids                = local.subnet_ids
  key_arn                   = local.key_arn
  tags                      = local.tags
}

module "mwaa" {
  source = "./modules/mwaa"
  count  = var.mwaa == null ? 0 : 1

  name                  = local.name
  airflow_version       = var.mwaa.airflow_version
  environment_class     = var.mwaa.environment_class
  min_workers           = var.mwaa.min_workers
  max_workers           = var.mwaa.max_workers
  webserver_access_mode = var.mwaa.webserver_access_mode
  bundle                = var.mwaa.bundle
  configuration_options = local.configuration_options
  bucket                = module.buckets.names["mwaa"]
  bucket_arn            = module.buckets.arns["mwaa"]
  policies              = module.permissions.policies
  vpc_id                = local.vpc_id
  subnet_ids            = local.subnet_ids
  key_arn               = local.key_arn
  tags                  = local.tags
}

# For an Airflow that is there already.
resource "aws_iam_policy" "control_plane" {
  name        = "${local.name}-control-plane"
  description = "What Airflow may do to run pdf_ops."
  policy      = module.permissions.policies["control_plane"]
  tags        = local.tags
}

resource "aws_iam_role_policy_attachment" "control_plane" {
  count = var.airflow_role_name == null ? 0 : 1

  role       = var.airflow_role_name
  policy_arn = aws_iam_policy.control_plane.arn
}
