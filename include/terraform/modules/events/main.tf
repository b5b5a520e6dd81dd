# S3 itself tells a queue about new documents: that of the documents, for workers that run all the time, or that of
# the events, which starts runs.

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "OurBucketOnly"
    actions   = ["sqs:SendMessage"]
    resources = [var.queue_arn]

    principals {
      type        = "Service"
      identifiers = ["s3.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [var.bucket_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [var.account]
    }
  }
}

resource "aws_sqs_queue_policy" "this" {
  queue_url = var.queue_url
  policy    = data.aws_iam_policy_document.this.json
}

resource "aws_s3_bucket_notification" "this" {
  bucket = var.bucket

  dynamic "queue" {
    for_each = var.suffixes

    content {
      queue_arn     = var.queue_arn
      events        = ["s3:ObjectCreated:*"]
      filter_prefix = var.prefix
      filter_suffix = queue.value
    }
  }

  depends_on = [aws_sqs_queue_policy.this]
}
