"""The plugin: Airflow starts with it, whatever is missing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).resolve().parents[4] / "plugins" / "pdf_ops_plugin.py"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plugin that nobody has asked for its app yet."""
    for name in [name for name in sys.modules if name.startswith("pdf_ops.api")]:
        monkeypatch.delitem(sys.modules, name)
    spec = importlib.util.spec_from_file_location("pdf_ops_plugin_under_test", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "pdf_ops.api" not in sys.modules
    return module.PdfOpsPlugin()


def test_the_api_is_mounted_below_its_prefix(plugin: Any):
    [mounted] = plugin.fastapi_apps

    assert mounted["url_prefix"] == "/pdf-ops"
    assert mounted["app"].openapi()["paths"]["/v1/redrive"]


def test_airflow_starts_without_the_api_when_a_library_is_missing(
    plugin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "throttled.asyncio", None)

    assert plugin.fastapi_apps == []
    assert "requirements.txt" in caplog.text


def test_airflow_shows_the_pages_on_a_run_and_in_its_navigation(plugin: Any):
    views = {view["name"]: view for view in plugin.external_views}

    assert views["PDF run"]["destination"] == "dag_run"
    assert views["PDF documents"]["destination"] == "nav"
    assert "{RUN_ID}" in views["PDF run"]["href"]
    # Relative: Airflow may be below a prefix itself.
    assert all(not view["href"].startswith(("/", "http")) for view in views.values())


def test_without_the_api_there_is_nothing_to_show(plugin: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "throttled.asyncio", None)

    assert plugin.external_views == []
