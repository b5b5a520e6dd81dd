# The documents' queue, its dead-letter queue, and that of events, as include/resources.json defines them.

# Those without a dead-letter queue of their own: the dead letters themselves, and events, which may be lost.
resource "aws_sqs_queue" "dead_letters" {
  for_each = { for key, queue in var.queues : key => queue if queue.dead_letter_queue == null }

  name                       = each.value.name
  visibility_timeout_seconds = each.value.visibility_timeout_s
  receive_wait_time_seconds  = each.value.receive_wait_s
  message_retention_seconds  = each.value.retention_s
  sqs_managed_sse_enabled    = true
  tags                       = var.tags
}

resource "aws_sqs_queue" "this" {
  for_each = { for key, queue in var.queues : key => queue if queue.dead_letter_queue != null }

  name                       = each.value.name
  visibility_timeout_seconds = each.value.visibility_timeout_s
  receive_wait_time_seconds  = each.value.receive_wait_s
  message_retention_seconds  = each.value.retention_s
  sqs_managed_sse_enabled    = true
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters[each.value.dead_letter_queue].arn
    maxReceiveCount     = each.value.max_receive_count
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "this" {
  for_each = aws_sqs_queue.this

  queue_url = aws_sqs_queue.dead_letters[var.queues[each.key].dead_letter_queue].id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [each.value.arn]
  })
}
