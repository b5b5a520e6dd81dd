"""The worked example of the costs page, worked again."""

from __future__ import annotations

import re

import pytest

from local_airflow.environment import REPOSITORY
from local_aws.resources import load_resources
from pdf_ops.cost import Prices

PAGE = (REPOSITORY / "docs" / "costs.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES, DOCUMENTS, BUSY = 1_000_000, 100_000, 0.9


def measured(pattern: str) -> float:
    found = re.search(pattern, README)
    assert found is not None, pattern
    return float(found[1])


def cpu_hours(scanned: float) -> float:
    scan_s = measured(r"\| pdf_ops \| ([\d.]+) \|") / 39
    text_s = measured(r"\| pdf_ops --ocr off \| ([\d.]+) \|") / 808
    document_s = measured(r"([\d.]+) ms of worker CPU a document") / 1000
    return (PAGES * (scanned * scan_s + (1 - scanned) * text_s) + DOCUMENTS * document_s) / 3600


@pytest.mark.parametrize(("label", "scanned"), [("none", 0), ("a tenth", 0.1), ("half", 0.5), ("all", 1)])
def test_the_costs_page_follows_from_measured_cpu_and_the_prices_of_the_report(label, scanned) -> None:
    definition = load_resources().task_definition
    size = {"vcpu": definition.cpu / 1024, "gb": definition.memory_mb / 1024}
    hours = cpu_hours(scanned)
    worker_hours = hours / BUSY / size["vcpu"]
    on_demand, spot = (worker_hours * Prices().hourly(**size, is_spot=is_spot) for is_spot in (False, True))

    assert f"| {label} | {hours:.1f} | ${on_demand:.2f} | ${spot:.2f} |" in PAGE
