"""The Terraform configuration against the code: what one names, the other has."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.permissions import PERMISSIONS_FILE, load_permissions, variables
from tests.support.terraform import ROOT, blocks, files, folders, local_values
from tests.unit.ocr_worker.builders import document_row, page_row

from local_aws.resources import RESOURCES_FILE, load_resources
from ocr_worker.events import METRICS_INTERVAL_S, NAMESPACE, Metrics
from ocr_worker.options import settings_of
from ocr_worker.settings import ServiceSettings
from ocr_worker.summary import STAGES
from pdf_ops.api.mounted import SECTION as API_SECTION
from pdf_ops.api.settings import API_SETTINGS
from pdf_ops.api.settings import PREFIX as API_PREFIX
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.layout import Layout
from pdf_ops.contract.pages import Method
from pdf_ops.cost import Prices
from pdf_ops.pipeline import WORKER_ENVIRONMENT
from pdf_ops.settings import SETTINGS

MODULES = ROOT / "modules"
WORKER_SETTINGS = {setting.option.variable: setting for setting in settings_of(ServiceSettings)}
RESOURCES = load_resources()
CONTAINER = RESOURCES.task_definition.container


def root_module(name: str) -> dict:
    return dict(blocks(ROOT, "module"))[name]


# Settings ----------------------------------------------------------------------------------------


def test_every_setting_that_the_worker_requires_is_in_its_task_definition() -> None:
    required = {name for name, setting in WORKER_SETTINGS.items() if setting.is_required}

    assert required <= {setting.name for setting in CONTAINER.environment}


def test_the_task_definition_names_only_settings_that_the_worker_has() -> None:
    given = {setting.name for setting in CONTAINER.environment}
    # Of the control plane: listing is not the worker's.
    assert given - {"INPUT_S3_PREFIX"} <= set(WORKER_SETTINGS)
    assert "OCR_SCRATCH_DIR" in WORKER_SETTINGS
    assert (
        "OCR_SCRATCH_DIR = var.container.scratch_path" in local_values(MODULES / "container")["environment"]
    )


def test_what_a_run_tells_its_workers_is_what_the_task_definition_would() -> None:
    """A worker that runs by itself finds the same places as one that a run starts."""
    # OpenSearch is there for who asks for it, and the run says where.
    optional = {"OPENSEARCH_URL", "OPENSEARCH_INDEX"}
    assert set(WORKER_ENVIRONMENT) - optional <= {setting.name for setting in CONTAINER.environment}
    assert optional <= set(WORKER_SETTINGS)


def test_the_outputs_hold_every_setting_that_airflow_requires_and_no_unknown_one() -> None:
    given = set(local_values(ROOT)["own_settings"])

    assert {name for name, setting in SETTINGS.items() if setting.is_required} <= given
    assert given <= set(SETTINGS)


def test_the_examples_use_settings_that_exist() -> None:
    example = dict(blocks(ROOT / "examples" / "complete", "module"))["pdf_ops"]

    assert set(example["airflow_settings"]) <= set(SETTINGS)
    assert set(example["api_settings"]) <= {setting.name for setting in API_SETTINGS}
    assert set(example["worker_environment"]) | set(example["worker_secrets"]) <= set(WORKER_SETTINGS)


def test_the_settings_of_the_api_go_where_it_looks_for_them() -> None:
    options = local_values(ROOT)["configuration_options"]
    environment = dict(blocks(ROOT, "output"))["airflow_environment"]["value"]

    assert f'"{API_SECTION}.${{name}}"' in options
    assert f'"{API_PREFIX}${{upper(name)}}"' in environment


def test_the_same_resources_are_made_here_and_on_the_local_aws() -> None:
    used = " ".join(file.read_text(encoding="utf-8") for file in ROOT.glob("*.tf"))

    assert 'jsondecode(file("${path.module}/../resources.json"))' in used
    for kind, keys in json.loads(RESOURCES_FILE.read_text(encoding="utf-8")).items():
        assert f"local.resources.{kind}" in used, keys


# What belongs together ---------------------------------------------------------------------------


def test_a_worker_has_ended_before_ecs_kills_it() -> None:
    assert CONTAINER.stop_timeout_s >= WORKER_SETTINGS["STOP_TIMEOUT_S"].default + 30
    assert CONTAINER.stop_timeout_s <= 120, "Fargate's maximum"


def test_a_document_that_kills_its_workers_is_closed_before_the_queue_gives_up_on_it() -> None:
    receives = RESOURCES.queues["documents"].max_receive_count

    assert receives is not None
    assert receives > WORKER_SETTINGS["MAX_UNFINISHED"].default


def test_every_bucket_keeps_old_versions() -> None:
    assert all(bucket.versioning for bucket in RESOURCES.buckets.values())


def test_the_oldest_message_is_an_alarm_before_it_is_lost() -> None:
    variable = dict(blocks(ROOT, "variable"))["max_message_age_s"]

    assert (
        f"var.max_message_age_s < {RESOURCES.queues['documents'].retention_s}"
        in (variable["validation"][0]["condition"])
    )
    assert variable["default"] < RESOURCES.queues["documents"].retention_s


def test_only_what_can_be_made_again_or_was_merged_expires() -> None:
    layout = Layout(output_bucket="out", output_prefix="", manifest_bucket="manifest", manifest_prefix="m")
    expirations = root_module("buckets")["expirations"]

    pages, staged = expirations["output"]
    [runs] = expirations["manifest"]
    page_file = layout.document_pages(bucket="in", key="a", etag="e", config_hash="0" * 16)
    assert page_file.key.startswith(pages.removeprefix("${local.output_prefix}"))
    assert not layout.pages_dataset().key.startswith(pages.removeprefix("${local.output_prefix}"))
    assert layout.staged_prefix("r").key.startswith(staged.removeprefix("${local.output_prefix}"))
    assert layout.run_prefix("r").key.startswith(runs.replace("${local.manifest_prefix}", "m/"))


# Permissions -------------------------------------------------------------------------------------


def test_every_policy_of_a_role_is_made_from_the_proved_permissions() -> None:
    found = {}
    for folder in folders():
        for label, content in blocks(folder, "resource"):
            if label.startswith(("aws_iam_role_policy.", "aws_iam_policy.")):
                found[f"{folder.name}.{label}"] = content["policy"]

    # The one role that is neither Airflow's nor a worker's.
    assert found.pop("network.aws_iam_role_policy.flow") == "${data.aws_iam_policy_document.flow.json}"
    assert len(found) == 4
    for label, policy in found.items():
        assert re.fullmatch(r"\$\{(var|module\.permissions)\.policies\[.+\]\}", policy), label
    assert root_module("permissions")["file"] == "${path.module}/../permissions.json"


def test_the_permissions_get_all_names_that_they_leave_open() -> None:
    assert set(root_module("permissions")["names"]) == variables()


def test_no_action_is_allowed_on_everything_that_could_be_on_something() -> None:
    everywhere = {one.action for one in load_permissions({}) if one.arns == ("*",)}

    # AWS has no resources for these.
    assert everywhere == {
        "cloudwatch:PutMetricData",
        "ecr:GetAuthorizationToken",
        "ecs:DescribeTaskDefinition",
        "ecs:ListTasks",
        "logs:DescribeLogGroups",
        "s3:GetAccountPublicAccessBlock",
    }
    [listing] = [one for one in load_permissions({}) if one.action == "ecs:ListTasks"]
    assert listing.condition is not None


def test_no_role_of_ours_has_actions_with_wildcards() -> None:
    ours = [one.action for one in load_permissions({}) if one.role != "mwaa"]

    assert [action for action in ours if "*" in action] == []


def test_a_permission_that_no_test_exercises_says_why() -> None:
    content = json.loads(PERMISSIONS_FILE.read_text(encoding="utf-8"))
    reasons = [
        statement["unproved"]
        for statements in content["roles"].values()
        for statement in statements
        if "unproved" in statement
    ]

    assert reasons
    assert all(reason.endswith(".") for reason in reasons)


# Alarms ------------------------------------------------------------------------------------------


def emitted() -> dict[tuple[str, ...], set[str]]:
    """Every metric that the worker can write, by the names of its dimensions."""
    metrics = Metrics()
    for method in Method:
        metrics.page(page_row(method=method, **{f"{stage}_ms": 1.0 for stage in STAGES}))
    for status in DocumentStatus:
        metrics.document(document_row(status, PdfOpsError(ErrorKind.CORRUPT_NOT_A_PDF)))
    found: dict[tuple[str, ...], set[str]] = {}
    for line in metrics.drain("worker"):
        for group in line["_aws"]["CloudWatchMetrics"]:
            assert group["Namespace"] == NAMESPACE
            for names in group["Dimensions"]:
                found.setdefault(tuple(names), set()).update(one["Name"] for one in group["Metrics"])
    return found


def alarm_metrics() -> list[dict]:
    alarms = [content for label, content in blocks(MODULES / "monitoring", "resource") if "alarm." in label]
    queries = [query for alarm in alarms for query in alarm.get("metric_query", [])]
    return [metric for query in queries for metric in query.get("metric", [])]


def test_alarms_are_on_metrics_that_the_worker_writes() -> None:
    values = local_values(MODULES / "monitoring")
    assert values["namespace"] == NAMESPACE
    ours = [metric for metric in alarm_metrics() if metric["namespace"] == "${local.namespace}"]

    assert len(ours) == 4
    assert all(metric["dimensions"] == "${local.dimensions}" for metric in ours)
    assert {metric["metric_name"] for metric in ours} <= emitted()[tuple(values["dimensions"])]


def test_the_dashboard_shows_metrics_that_the_worker_writes() -> None:
    text = (MODULES / "monitoring" / "main.tf").read_text(encoding="utf-8")
    widgets = text[text.index("widgets = [\n    {") :]
    lists = re.findall(r"for name in \[([^\]]+)\]", widgets)
    named = {name for names in lists for name in re.findall(r'"(\w+)"', names)}
    named |= set(re.findall(r'concat\(\[local\.namespace, "(\w+)"\]', widgets))

    assert len(named) > 10
    assert named <= emitted()[("service",)]
    assert '{${local.namespace},error_class} MetricName=\\"Failures\\"' in widgets
    assert emitted()[("error_class",)] == {"Failures"}


def test_the_cost_alarm_counts_worker_minutes_at_the_prices_of_the_report() -> None:
    prices = dict(blocks(ROOT, "variable"))["prices_usd"]["default"]

    assert METRICS_INTERVAL_S == 60
    assert prices == {"vcpu_hour": Prices().vcpu_hour, "gb_hour": Prices().gb_hour}


# Form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_every_variable_and_output_says_what_it_is(folder) -> None:
    for kind in ("variable", "output"):
        for name, content in blocks(folder, kind):
            assert content.get("description", "").endswith("."), f"{kind} {name}"


def test_every_suppression_of_a_check_has_a_reason() -> None:
    lines = [line for file in files() for line in file.read_text(encoding="utf-8").splitlines()]
    suppressions = [line for line in lines if "checkov:skip" in line]

    assert suppressions
    for line in suppressions:
        assert re.search(r"#checkov:skip=CKV2?_AWS_\d+:\S.{20,}$", line), line
