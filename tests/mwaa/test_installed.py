"""The bundle, installed the way MWAA does it, on Python 3.12 and both versions of Airflow."""

from __future__ import annotations

import json
import platform
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.api import Api, upload
from tests.support.mwaa import MwaaInstall
from tests.support.pipeline import Pipeline
from tests.support.slack import SlackEndpoint
from tests.support.world import World

from local_airflow.environment import REPOSITORY
from mwaa.bundle import AIRFLOW_VERSIONS
from samples.documents import text_pdf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from local_aws import LocalAws

pytestmark = pytest.mark.timeout(900)

INSTALL_LIMIT_S = 9 * 60
TASK_MEMORY_MB = 400  # a small worker has 2 GB for five tasks

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, re, time
started = time.process_time()
import pdf_ops
names = [module.name for module in pkgutil.walk_packages(pdf_ops.__path__, "pdf_ops.")]
for name in names:
    importlib.import_module(name)
import pyarrow.parquet, pyarrow.compute  # what tasks import when they run
# Not getrusage: its peak is inherited from the process that started this one.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
print(json.dumps({"names": names, "file": pdf_ops.__file__, "peak_mb": peak_kb / 1024,
                  "cpu_s": time.process_time() - started}))
"""
FIND_OURS = """
import importlib.util, json
names = ["include", "local_aws", "local_airflow", "mwaa", "ocr_worker", "samples"]
print(json.dumps([name for name in names if importlib.util.find_spec(name)]))
"""


@pytest.fixture(scope="module", params=AIRFLOW_VERSIONS)
def environment(request: pytest.FixtureRequest, mwaa_install: Callable[[str], MwaaInstall]) -> MwaaInstall:
    return mwaa_install(request.param)


@pytest.fixture(scope="module", params=AIRFLOW_VERSIONS)
def offline(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MwaaInstall]:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the wheels are those of MWAA's containers: Linux on x86-64")
    folder = tmp_path_factory.mktemp(f"mwaa-offline-{request.param}")
    yield MwaaInstall(request.param, folder, has_wheels=True)
    shutil.rmtree(folder)


@pytest.fixture
def home(environment: MwaaInstall) -> Path:
    return environment.home()


def locked(airflow: str) -> dict[str, str]:
    text = (REPOSITORY / "locks" / f"mwaa-{airflow}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def import_everything(environment: MwaaInstall) -> dict[str, object]:
    printed = environment.run("python", "-c", IMPORT_EVERYTHING, PYTHONPATH=str(environment.plugins))
    return dict(json.loads(printed.splitlines()[-1]))


def test_the_requirements_install_within_mwaas_nine_minutes(environment, capsys):
    with capsys.disabled():
        print(f"\nAirflow {environment.airflow}: pip took {environment.install_s:.1f} s for the requirements")

    assert environment.install_s < INSTALL_LIMIT_S


def test_the_requirements_add_packages_and_change_none_of_the_image(environment):
    assert environment.added == locked(environment.airflow)
    environment.run("pip", "check")


def test_nothing_below_include_is_there(environment):
    assert json.loads(environment.run("python", "-c", FIND_OURS).splitlines()[-1]) == []


def test_the_dags_parse_without_errors(environment, home):
    dags = environment.airflow_rows(home, "dags", "list", "--local")

    assert environment.airflow_rows(home, "dags", "list-import-errors", "--local") == []
    # The doorbell's file defines nothing unless it is configured.
    files = {path.stem for path in environment.dags.glob("*.py")}
    assert {dag["dag_id"] for dag in dags} == files - {"pdf_doorbell"}


def test_the_plugin_loads_without_errors(environment, home):
    printed = environment.run("airflow", "plugins", "--output", "json", AIRFLOW_HOME=str(home))

    assert "Failed to import plugin" not in printed
    assert '"name": "pdf_ops"' in printed
    assert '"url_prefix": "/pdf-ops"' in printed, "the API is mounted"


def test_the_api_runs_there(environment, local_aws: LocalAws, tmp_path):
    body = text_pdf(tmp_path / "text.pdf").read_bytes()
    with World(local_aws) as world:
        api = Api(local_aws, world, tmp_path, python=environment.bin / "python")
        api._environment["PYTHONPATH"] = str(environment.plugins)
        with api, api.client() as client:
            taken = upload(client, "a.pdf", body)
            found = client.get("/v1/documents/list-document")
            ready = client.get("/ready")

    assert taken.status_code == 202, taken.text
    assert [document["job_id"] for document in found.json()["documents"]] == [taken.json()["job_id"]]
    assert ready.json()["status"] == "ok", ready.text


def test_every_module_imports_within_a_tasks_memory(environment, capsys):
    found = import_everything(environment)

    with capsys.disabled():
        print(
            f"\nAirflow {environment.airflow}: all {len(found['names'])} modules of pdf_ops, with what they "
            f"import: {found['peak_mb']:.0f} MB, {found['cpu_s']:.1f} s of CPU"
        )
    assert found["file"] == str(environment.plugins / "pdf_ops" / "__init__.py")
    sources = list((REPOSITORY / "plugins" / "pdf_ops").rglob("*.py"))
    assert len(found["names"]) == len(sources) - 1
    assert found["peak_mb"] < TASK_MEMORY_MB


def test_the_dag_runs_from_end_to_end(environment, local_aws: LocalAws, tmp_path):
    text_pdf(tmp_path / "text.pdf")
    with SlackEndpoint() as slack, Pipeline(local_aws, environment, slack) as world:
        world.put("a.pdf", (tmp_path / "text.pdf").read_bytes())
        world.put("bad.pdf", b"<html>503 Service Unavailable</html>")
        run = world.run()

        assert run.exit_code == 0, run.output[-10_000:]
        assert {key: row["status"] for key, row in run.documents.items()} == {
            "a.pdf": "done",
            "bad.pdf": "failed",
        }
        assert run.reconciliation["is_reconciled"]
        assert run.pages == [("a.pdf", 1, "ok")]
        [message] = run.slack_messages
        assert "1 ok, 0 partial, 1 failed" in message


def test_the_bundle_with_wheels_installs_without_any_package_index(offline, capsys):
    with capsys.disabled():
        print(f"\nAirflow {offline.airflow}: pip installed the wheels in {offline.install_s:.1f} s")

    assert offline.install_s < INSTALL_LIMIT_S
    assert offline.added == locked(offline.airflow)
    offline.run("pip", "check")


def test_the_bundle_with_wheels_works_like_the_other(offline):
    variables = {"AIRFLOW_HOME": str(offline.home_folder / "home"), "PYTHONPATH": str(offline.plugins)}

    assert import_everything(offline)["names"]
    for dag in offline.dags.glob("*.py"):
        offline.run("python", str(dag), **variables)
    printed = offline.run("airflow", "plugins", "--output", "json", **variables)
    assert "Failed to import plugin" not in printed
    assert '"name": "pdf_ops"' in printed
    assert '"url_prefix": "/pdf-ops"' in printed
