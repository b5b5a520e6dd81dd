# The least: a VPC of its own, new buckets, an Airflow that is there already.
#
#   terraform init && terraform apply -var image_tag=0.1.0
#   terraform output -json mwaa_configuration_options

provider "aws" {
  region = var.region
}

module "pdf_ops" {
  source = "../.."

  image_tag = var.image_tag
}
