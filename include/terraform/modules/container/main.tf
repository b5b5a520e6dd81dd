# The worker's container definition from include/resources.json. No resources: `terraform plan` evaluates it
# without a provider, and a test holds it against what the local AWS registers.

locals {
  sources = {
    bucket = var.buckets
    queue  = var.queue_urls
    table  = var.tables
  }

  # Each setting of the file is {"value": text}, {"region": true}, or {"KIND": KEY} of a resource.
  settings = {
    for name, source in var.container.environment : name => (
      can(source.value) ? source.value :
      can(source.region) ? var.region :
      local.sources[keys(source)[0]][values(source)[0]]
    )
  }

  environment = merge(local.settings, { OCR_SCRATCH_DIR = var.container.scratch_path }, var.environment)

  definition = {
    name                   = var.container.name
    image                  = var.image
    command                = var.container.command
    essential              = true
    stopTimeout            = var.container.stop_timeout_s
    readonlyRootFilesystem = true
    privileged             = false
    user                   = "10001:10001"
    linuxParameters        = { capabilities = { drop = ["ALL"] } }
    ulimits                = [{ name = "nofile", softLimit = var.container.open_files, hardLimit = var.container.open_files }]
    mountPoints            = [{ sourceVolume = var.scratch_volume, containerPath = var.container.scratch_path, readOnly = false }]
    environment            = [for name, value in local.environment : { name = name, value = value }]
    secrets                = [for name, arn in var.secrets : { name = name, valueFrom = arn }]
    # ECS does not look at the image's own.
    healthCheck = { command = ["CMD", "ocr-worker", "doctor", "--quick"], interval = 30, timeout = 10, retries = 3, startPeriod = 60 }
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = var.log_group
        awslogs-region        = var.region
        awslogs-stream-prefix = var.container.log_stream_prefix
      }
    }
  }
}
