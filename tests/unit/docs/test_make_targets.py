"""What pages and workflows tell to make, make makes."""

from __future__ import annotations

import re

import pytest
import yaml

from local_airflow.environment import REPOSITORY

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("include/**/*.md")])
WORKFLOWS = sorted(REPOSITORY.glob(".github/workflows/*.yml"))
TARGETS = set(
    re.findall(r"^([a-z][a-z-]*):.* ## ", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_that_a_page_names_exists(page) -> None:
    named = re.findall(r"(?:`|^ {4}|\$ )make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(named) <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_every_target_that_a_workflow_makes_exists(workflow) -> None:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
    made = {
        target
        for job in jobs
        for step in job["steps"]
        for named in re.findall(r"\bmake (\S+(?: matrix\.target }})?)", step.get("run", ""))
        for target in (job["strategy"]["matrix"]["target"] if named.startswith("${{") else [named])
    }

    assert made
    assert made <= TARGETS


def test_the_nightly_workflow_makes_what_is_too_long_for_every_change() -> None:
    [images] = [workflow for workflow in WORKFLOWS if workflow.name == "images.yml"]
    content = yaml.safe_load(images.read_text(encoding="utf-8"))

    # YAML takes a bare `on` for a truth value.
    assert content[True]["schedule"]
    assert content["jobs"]["test"]["strategy"]["matrix"]["target"] == ["image-test", "compose-test"]
