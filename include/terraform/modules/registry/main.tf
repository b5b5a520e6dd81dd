# Where the worker's image is: a tag never changes, so that a task definition always means the same bytes.

resource "aws_ecr_repository" "this" {
  #checkov:skip=CKV_AWS_136:Encrypted with AES-256; the image holds published code and no data
  name                 = var.name
  image_tag_mutability = "IMMUTABLE"
  tags                 = var.tags

  image_scanning_configuration {
    scan_on_push = true
  }
}

resource "aws_ecr_lifecycle_policy" "this" {
  repository = aws_ecr_repository.this.name

  policy = jsonencode({
    rules = [{
      rulePriority = 1
      description  = "Keep the newest ${var.kept_images} images: as many releases can be rolled back"
      action       = { type = "expire" }
      selection = {
        tagStatus   = "any"
        countType   = "imageCountMoreThan"
        countNumber = var.kept_images
      }
    }]
  })
}
