# The roles' policies from include/permissions.json, which a test proves with real runs. No resources:
# `terraform plan` evaluates it without a provider.

locals {
  content = jsondecode(templatefile(var.file, var.names))

  # A value of var.names may be several ARNs, separated by commas, or none.
  resources = {
    for kind, entries in local.content.resources : kind => compact(flatten([for entry in entries : split(",", entry)]))
  }

  policies = {
    for role, statements in local.content.roles : role => {
      Version = "2012-10-17"
      Statement = [
        for statement in statements : merge(
          {
            Sid      = statement.id
            Effect   = "Allow"
            Action   = statement.actions
            Resource = local.resources[statement.resource]
          },
          { for name in try([statement.condition], []) : "Condition" => local.content.conditions[name] },
        ) if length(local.resources[statement.resource]) > 0
      ]
    }
  }
}
