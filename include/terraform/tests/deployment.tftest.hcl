# `terraform test`: the whole configuration is applied with a provider that only pretends, so no account is needed.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }

  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }

  mock_data "aws_availability_zones" {
    defaults = { names = ["eu-central-1a", "eu-central-1b", "eu-central-1c"] }
  }

  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\": \"2012-10-17\", \"Statement\": []}" }
  }

  mock_resource "aws_ecr_repository" {
    defaults = {
      repository_url = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/pdf-ops-worker"
      arn            = "arn:aws:ecr:eu-central-1:123456789012:repository/pdf-ops-worker"
    }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mocked" }
  }

  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/mocked" }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
  }

  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:eu-central-1:123456789012:mocked"
      url = "https://sqs.eu-central-1.amazonaws.com/123456789012/mocked"
      id  = "https://sqs.eu-central-1.amazonaws.com/123456789012/mocked"
    }
  }

  mock_resource "aws_dynamodb_table" {
    defaults = { arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/mocked" }
  }

  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::mocked" }
  }

  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:123456789012:log-group:mocked" }
  }

  mock_resource "aws_opensearch_domain" {
    defaults = { endpoint = "search.example.com" }
  }

  mock_resource "aws_mwaa_environment" {
    defaults = { webserver_url = "airflow.example.com" }
  }
}

variables {
  image_tag = "0.1.0"
}

run "the_least_is_a_tag" {
  assert {
    condition     = output.airflow_environment["AIRFLOW__PDF_OPS__INPUT_S3_BUCKET"] == "pdf-ops-input-123456789012-eu-central-1"
    error_message = "The input bucket is named after account and region."
  }

  assert {
    condition     = output.mwaa_configuration_options["pdf_ops.ecs_task_definition"] == "pdf-ops-worker"
    error_message = "Airflow is told the family, not a revision."
  }

  assert {
    condition     = !contains(keys(output.mwaa_configuration_options), "pdf_ops.output_s3_prefix")
    error_message = "MWAA refuses empty options."
  }

  assert {
    condition     = length(split(",", output.airflow_environment["AIRFLOW__PDF_OPS__ECS_SUBNETS"])) == 2
    error_message = "Two private subnets."
  }

  assert {
    condition     = output.mwaa == null && output.search_endpoint == null
    error_message = "What is optional is not there."
  }

  assert {
    condition     = strcontains(module.container.definitions, "/pdf-ops-worker:0.1.0\"")
    error_message = "The image is that of the tag."
  }
}

run "everything_at_once" {
  variables {
    name_prefix        = "dev-"
    input_bucket_name  = "our-documents"
    input_key_arn      = "arn:aws:kms:eu-central-1:123456789012:key/11111111-1111-1111-1111-111111111111"
    input_prefix       = "incoming/"
    worker_cpu         = 4096
    worker_memory_mb   = 16384
    worker_secrets     = { OCR_PASSWORD = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:pdf-AbCdEf:password::" }
    sends_events       = true
    airflow_role_name  = "other-airflow"
    airflow_settings   = { schedule = "none" }
    api_settings       = { max_upload_mb = "512" }
    search             = { principal_arns = ["arn:aws:iam::123456789012:role/search"], client_security_group_ids = ["sg-1"] }
    mwaa               = { bundle = { plugins_version = "1", requirements_version = "2", startup_version = "3" } }
    worker_environment = { MAX_RETRIES = "5" }
  }

  assert {
    condition     = output.airflow_environment["AIRFLOW__PDF_OPS__INPUT_S3_BUCKET"] == "our-documents"
    error_message = "The documents stay where they are."
  }

  assert {
    condition     = !contains(keys(module.buckets.names), "input")
    error_message = "No second input bucket."
  }

  assert {
    condition     = output.mwaa.bucket == "dev-pdf-ops-mwaa-123456789012-eu-central-1"
    error_message = "The environment has its own bucket."
  }

  assert {
    condition     = output.mwaa_configuration_options["pdf_ops.schedule"] == "none"
    error_message = "Further settings reach Airflow."
  }

  assert {
    condition     = output.mwaa_configuration_options["pdf_ops_api.max_upload_mb"] == "512" && output.airflow_environment["PDF_OPS_MAX_UPLOAD_MB"] == "512"
    error_message = "Settings of the API reach it."
  }

  assert {
    condition     = strcontains(module.permissions.policies["execution"], "\"arn:aws:secretsmanager:eu-central-1:123456789012:secret:pdf-AbCdEf\"")
    error_message = "ECS may read the secret, whatever value of it is asked for."
  }

  assert {
    condition     = strcontains(module.permissions.policies["worker"], "key/11111111-1111-1111-1111-111111111111")
    error_message = "Workers may use the input bucket's key."
  }
}

run "in_a_network_that_is_there" {
  variables {
    network = { vpc_id = "vpc-1", subnet_ids = ["subnet-1", "subnet-2"], assign_public_ip = true }
    key_arn = "arn:aws:kms:eu-central-1:123456789012:key/22222222-2222-2222-2222-222222222222"
  }

  assert {
    condition     = output.airflow_environment["AIRFLOW__PDF_OPS__ECS_SUBNETS"] == "subnet-1,subnet-2"
    error_message = "Workers run in the given subnets."
  }

  assert {
    condition     = output.airflow_environment["AIRFLOW__PDF_OPS__ASSIGN_PUBLIC_IP"] == "true"
    error_message = "With public addresses."
  }

  assert {
    condition     = length(module.network) == 0 && length(module.encryption) == 0
    error_message = "Neither VPC nor key is created."
  }
}

run "values_that_cannot_work_are_refused" {
  command = plan

  variables {
    name_prefix         = "Dev_"
    image_tag           = "latest"
    worker_cpu          = 3000
    worker_secrets      = { OCR_PASSWORD = "hunter2" }
    page_file_days      = 1
    no_progress_minutes = 7
    mwaa                = { airflow_version = "2.10.1" }
  }

  expect_failures = [
    var.name_prefix,
    var.image_tag,
    var.worker_cpu,
    var.worker_secrets,
    var.page_file_days,
    var.no_progress_minutes,
    var.mwaa,
  ]
}
