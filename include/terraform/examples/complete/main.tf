# Everything: documents in a bucket that is there, larger workers, a password for encrypted documents, alarms,
# S3's events, OpenSearch, and an MWAA environment.

provider "aws" {
  region = var.region

  default_tags {
    tags = { team = "documents" }
  }
}

module "pdf_ops" {
  source = "../.."

  name_prefix = "dev-"

  input_bucket_name = var.input_bucket_name
  input_key_arn     = var.input_key_arn
  input_prefix      = "incoming/"
  page_file_days    = 14

  image_tag          = var.image_tag
  worker_cpu         = 4096
  worker_memory_mb   = 16384
  worker_environment = { MAX_RETRIES = "5" }
  worker_secrets     = { OCR_PASSWORD = var.password_secret_arn }

  alarm_topic_arns     = [var.alarm_topic_arn]
  max_cost_per_day_usd = 50

  sends_events = true

  search = {
    principal_arns            = [var.search_role_arn]
    client_security_group_ids = [var.search_security_group_id]
  }

  mwaa = {
    environment_class = "mw1.medium"
    bundle            = var.bundle
  }

  airflow_settings = {
    schedule      = "0 2 * * *"
    languages     = "eng+deu"
    max_workers   = "50"
    slack_conn_id = "slack_pdf_ops"
  }

  api_settings = { max_upload_mb = "512" }
}
