"""Settings: all that is wrong is named at once, and a DAG file never fails for them."""

from __future__ import annotations

import pickle

import pytest

from pdf_ops import settings
from pdf_ops.exceptions import SettingsError

GOOD = {
    "input_s3_bucket": "s3://my-input/",
    "output_s3_bucket": "my-output",
    "sqs_queue_url": "https://sqs.us-east-1.amazonaws.com/1/documents",
    "dlq_sqs_queue_url": "https://sqs.us-east-1.amazonaws.com/1/dead",
    "dynamo_table_name": "state",
    "dynamo_runs_table_name": "runs",
    "ecs_cluster": "cluster",
    "ecs_task_definition": "worker",
    "ecs_subnets": "subnet-1, subnet-2,",
}


@pytest.fixture
def configure(monkeypatch):
    for setting in settings.SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)

    def configure(**values):
        for name, value in values.items():
            monkeypatch.setenv(f"AIRFLOW__PDF_OPS__{name.upper()}", value)

    return configure


def test_every_missing_setting_is_named_at_once_with_what_it_accepts(configure):
    configure()

    with pytest.raises(SettingsError) as raised:
        settings.load()

    lines = str(raised.value).splitlines()[1:]
    assert len(lines) == len(GOOD)
    assert all("is missing; accepts" in line for line in lines)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_missing_and_wrong_ones_are_named_together(configure):
    configure(**GOOD | {"sqs_queue_url": "documents", "max_workers": "many", "capacity": "cheap"})
    configure(ecs_cluster="")

    with pytest.raises(SettingsError) as raised:
        settings.load()

    text = str(raised.value)
    assert "AIRFLOW__PDF_OPS__SQS_QUEUE_URL: 'documents' is no queue URL" in text
    assert "AIRFLOW__PDF_OPS__MAX_WORKERS: 'many'" in text
    assert "accepts a whole number from 1 up to 1000" in text
    assert "AIRFLOW__PDF_OPS__CAPACITY: 'cheap' is none of them; accepts spot, on_demand" in text
    assert "AIRFLOW__PDF_OPS__ECS_CLUSTER is missing" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_s3_bucket", "not a bucket"),
        ("output_s3_prefix", "../up"),
        ("failure_threshold", "1.5"),
        ("poll_interval_s", "nan"),
        ("assign_public_ip", "perhaps"),
        ("languages", "eng+eng"),
        ("schedule", "every night"),
        ("lookback_days", "-1"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(configure, name, value):
    configure(**GOOD | {name: value})

    with pytest.raises(SettingsError, match=f"(?i){name}"):
        settings.load()


def test_buckets_may_have_a_scheme_and_lists_may_have_blanks(configure):
    configure(**GOOD)

    found = settings.load()

    assert found.input_s3_bucket == "my-input"
    assert found.ecs_subnets == "subnet-1,subnet-2"
    assert found.layout.manifest_bucket == "my-output"


def test_a_dag_file_gets_defaults_instead_of_errors(configure):
    configure(max_workers="many", schedule="every night")

    assert settings.setting("input_s3_bucket") == ""
    assert settings.setting("max_workers") == 20
    assert settings.setting("schedule") == "0 2 * * *"


def test_every_setting_says_what_it_is_for():
    for setting in settings.SETTINGS.values():
        assert setting.option.description.endswith("."), setting.name
        assert setting.accepted
        if not setting.is_required and setting.default != "":
            assert setting.parse(str(setting.default)) == setting.default
