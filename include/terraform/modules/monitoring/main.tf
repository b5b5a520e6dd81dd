# A dashboard, and alarms on what a person should look at. The metrics in the namespace pdf_ops are those that
# the worker writes into its log (include/ocr_worker/events.py).

locals {
  namespace  = "pdf_ops"
  dimensions = { service = "ocr-worker" }
  period_s   = 300

  # A worker writes its metrics once a minute: their number is that of worker minutes.
  hourly_price_usd = var.worker.cpu / 1024 * var.prices_usd.vcpu_hour + var.worker.memory_mb / 1024 * var.prices_usd.gb_hour
}

resource "aws_cloudwatch_metric_alarm" "dead_letters" {
  alarm_name          = "${var.name}-dead-letters-grow"
  alarm_description   = "Documents fail for good. The report of the run has them by error class; docs/errors.md says what to do."
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.max_dead_letters_per_hour
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.topic_arns
  ok_actions          = var.topic_arns
  tags                = var.tags

  # Not NumberOfMessagesSent, which leaves out what SQS itself moves there.
  metric_query {
    id          = "growth"
    label       = "Dead letters more than an hour before"
    expression  = "DIFF(visible + held)"
    return_data = true
  }

  metric_query {
    id = "visible"

    metric {
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = var.dead_letter_queue_name }
      stat        = "Maximum"
      period      = 3600
    }
  }

  metric_query {
    id = "held"

    metric {
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesNotVisible"
      dimensions  = { QueueName = var.dead_letter_queue_name }
      stat        = "Maximum"
      period      = 3600
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "oldest_message" {
  alarm_name          = "${var.name}-oldest-message"
  alarm_description   = "A document has waited for long. Are workers running? Messages are lost when the queue's retention is over."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = var.queue_name }
  statistic           = "Maximum"
  period              = local.period_s
  evaluation_periods  = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.max_message_age_s
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.topic_arns
  ok_actions          = var.topic_arns
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "no_progress" {
  alarm_name          = "${var.name}-no-progress"
  alarm_description   = "Documents wait, and none is finished. The workers' log, then the fleet tasks of the run."
  evaluation_periods  = var.no_progress_minutes / 5
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.topic_arns
  ok_actions          = var.topic_arns
  tags                = var.tags

  metric_query {
    id          = "stuck"
    label       = "Documents wait and none is finished"
    expression  = "IF(waiting > 0 AND FILL(finished, 0) < 1, 1, 0)"
    return_data = true
  }

  metric_query {
    id = "waiting"

    metric {
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = var.queue_name }
      stat        = "Maximum"
      period      = local.period_s
    }
  }

  metric_query {
    id = "finished"

    metric {
      namespace   = local.namespace
      metric_name = "Documents"
      dimensions  = local.dimensions
      stat        = "Sum"
      period      = local.period_s
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "failure_ratio" {
  alarm_name          = "${var.name}-failure-ratio"
  alarm_description   = "Too many documents fail. One class at the top of the report's errors is a cause, many are the documents."
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.max_failure_ratio
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.topic_arns
  ok_actions          = var.topic_arns
  tags                = var.tags

  metric_query {
    id          = "ratio"
    label       = "Failed of finished documents"
    expression  = "IF(finished >= ${var.failure_minimum}, FILL(failed, 0) / finished, 0)"
    return_data = true
  }

  metric_query {
    id = "failed"

    metric {
      namespace   = local.namespace
      metric_name = "DocumentsFailed"
      dimensions  = local.dimensions
      stat        = "Sum"
      period      = 3600
    }
  }

  metric_query {
    id = "finished"

    metric {
      namespace   = local.namespace
      metric_name = "Documents"
      dimensions  = local.dimensions
      stat        = "Sum"
      period      = 3600
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "cost_per_day" {
  alarm_name          = "${var.name}-cost-per-day"
  alarm_description   = "The workers of a day cost more than planned, at on-demand prices; on Spot it is about a third."
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.max_cost_per_day_usd
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.topic_arns
  ok_actions          = var.topic_arns
  tags                = var.tags

  metric_query {
    id          = "cost"
    label       = "USD a day"
    expression  = "minutes / 60 * ${local.hourly_price_usd}"
    return_data = true
  }

  metric_query {
    id = "minutes"

    metric {
      namespace   = local.namespace
      metric_name = "PeakMemory"
      dimensions  = local.dimensions
      stat        = "SampleCount"
      period      = 86400
    }
  }
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.name

  dashboard_body = jsonencode({
    widgets = [
      for index, widget in local.widgets : {
        type   = "metric"
        x      = index % 2 * 12
        y      = floor(index / 2) * 6
        width  = 12
        height = 6
        properties = {
          title   = widget.title
          region  = var.region
          view    = "timeSeries"
          period  = local.period_s
          metrics = widget.metrics
        }
      }
    ]
  })
}

locals {
  service = ["service", local.dimensions.service]

  widgets = [
    {
      title = "Documents by outcome"
      metrics = [
        for name in ["DocumentsDone", "DocumentsPartial", "DocumentsFailed", "DocumentsSkipped"] :
        concat([local.namespace, name], local.service, [{ stat = "Sum" }])
      ]
    },
    {
      title = "Pages by method"
      metrics = [
        for name in ["PagesTextLayer", "PagesOcr", "PagesEmpty", "PagesNone"] :
        concat([local.namespace, name], local.service, [{ stat = "Sum" }])
      ]
    },
    {
      title = "Queue"
      metrics = [
        ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", var.queue_name, { stat = "Maximum" }],
        ["AWS/SQS", "ApproximateNumberOfMessagesNotVisible", "QueueName", var.queue_name, { stat = "Maximum" }],
        ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", var.dead_letter_queue_name, { stat = "Maximum", label = "dead letters" }],
      ]
    },
    {
      title = "How long documents wait, milliseconds"
      metrics = [
        concat([local.namespace, "QueueLag"], local.service, [{ stat = "Maximum" }]),
      ]
    },
    {
      title = "Milliseconds a page"
      metrics = [
        for name in ["TotalP50", "TotalP95", "OcrP50", "OcrP95"] :
        concat([local.namespace, name], local.service, [{ stat = "Average" }])
      ]
    },
    {
      title = "Memory of a worker's main process, bytes"
      metrics = [
        concat([local.namespace, "PeakMemory"], local.service, [{ stat = "Maximum" }]),
      ]
    },
    {
      title = "Failures by class"
      metrics = [
        [{ expression = "SEARCH('{${local.namespace},error_class} MetricName=\"Failures\"', 'Sum', ${local.period_s})", id = "failures" }],
      ]
    },
    {
      title = "Workers"
      metrics = [
        concat([local.namespace, "PeakMemory"], local.service, [{ stat = "SampleCount", period = 60, label = "running" }]),
      ]
    },
  ]
}
