"""The worker's image, run as a deployment runs it: read-only, without privileges, stopped by a signal."""

from __future__ import annotations

import json
import re
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.support.containers import Container, Engine
from tests.support.world import World

from local_aws.resources import load_resources
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
RUN = "manual__2026-01-01T00:00:00+00:00"
SITE_PACKAGES = "/opt/ocr-worker/lib/python3.11/site-packages"
SBOM = "/usr/share/sbom/ocr-worker.cdx.json"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def world(local_aws: object) -> Iterator[World]:
    with World(local_aws) as world:
        yield world


# --- what it does ---------------------------------------------------------------


def test_a_container_drains_the_queue_and_leaves_nothing_behind(
    world: World, engine: Engine, image: str, tmp_path: Path
) -> None:
    world.start_run(RUN, 3)
    world.order(RUN, "text.pdf", made.text_pdf(tmp_path / "t.pdf", 3).read_bytes())
    world.order(RUN, "scan.pdf", made.scan_pdf(tmp_path / "s.pdf", [made.scan()]).read_bytes())
    world.order(RUN, "broken.pdf", b"")

    with Container(engine, image, world.worker_environment()) as container:
        assert container.wait() == 0, container.log()

        assert world.outcomes(RUN) == {"text.pdf": "done", "scan.pdf": "done", "broken.pdf": "failed"}
        assert world.counters(RUN).pages_ocr == 1
        assert world.messages_left() == 0
        assert container.scratch() == []


def test_a_container_that_is_stopped_gives_back_its_work_and_leaves_nothing_behind(
    world: World, engine: Engine, image: str, tmp_path: Path
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "long.pdf", made.scan_pdf(tmp_path / "l.pdf", [made.scan()] * 30).read_bytes())

    with Container(engine, image, world.worker_environment(STOP_TIMEOUT_S=2)) as container:
        container.wait_for_event("document.claimed")
        time.sleep(1)
        running = container.processes()
        began = time.monotonic()
        container.stop(timeout_s=120)
        took_s = time.monotonic() - began

        assert len(running) >= 3, "tini, the main process, a page process"
        assert container.wait() == 0, container.log()
        assert container.log()[-1]["event"] == "worker.stopped"
        assert container.log()[-1]["reason"] == "SIGTERM"
        assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in running)
        assert container.scratch() == []
    state = world.state("long.pdf")
    assert state is not None
    assert (state.attempts, state.lease_until, state.unfinished) == (0, 0, 0)
    assert world.messages_left() == 1
    print(f"\nstopped within {took_s:.1f} s")

    with Container(engine, image, world.worker_environment()) as container:
        assert container.wait() == 0
    assert world.outcomes(RUN) == {"long.pdf": "done"}
    assert world.counters(RUN).done == 1


def test_size_and_start_are_told(world: World, engine: Engine, image: str) -> None:
    size_bytes = engine.inspect_image(image)["Size"]
    began = time.time()
    with Container(engine, image, world.worker_environment(IDLE_S=1)) as container:
        started = container.wait_for_event("worker.started")
        running_at = datetime.fromisoformat(container.started_at()).timestamp()
        container.wait()
    ready_at = datetime.fromisoformat(started["ts"]).timestamp()

    print(
        f"\nimage: {size_bytes / 1e6:.0f} MB; ready {ready_at - running_at:.2f} s after the container's "
        f"start, {ready_at - began:.2f} s after the engine was asked"
    )
    assert size_bytes > 0


def test_doctor_in_the_image_finds_nothing_to_complain_about(engine: Engine, image: str) -> None:
    ran = engine.run(image, "doctor")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {line.split()[0] for line in ran.stdout.splitlines()} == {"ok"}, ran.stdout
    for name in ("pdfium", "pypdf", "pillow", "poppler", "tesserocr", "pytesseract", "eng", "osd", "memory"):
        assert name in ran.stdout


def test_languages_are_a_build_argument(engine: Engine, image: str) -> None:
    """By Tesseract's names, which differ from those of Debian's packages."""
    other = "pdf-ops-worker-test:languages"
    build = ["scripts/engine.sh", "build", "--file", "include/ocr_worker/Dockerfile", "--tag", other]
    subprocess.run([*build, "--build-arg", "LANGUAGES=deu+chi_sim", "."], cwd=REPOSITORY, check=True)
    try:
        ran = engine.run(other, "doctor", "--quick", "--languages", "deu+chi_sim")
    finally:
        engine.call("image", "rm", other)

    assert ran.returncode == 0, ran.stdout
    assert "chi_sim, deu, eng in" in ran.stdout
    assert engine.run(image, "doctor", "--quick", "--languages", "deu").returncode == 2


# --- what it may do -------------------------------------------------------------


def test_the_worker_is_nobody_and_may_nothing(world: World, engine: Engine, image: str) -> None:
    with Container(engine, image, world.worker_environment(), "run", "--forever") as container:
        container.wait_for_event("worker.started")
        status = container.execute("cat", "/proc/1/status").stdout
        (first, *others) = container.processes()
        parents = [first.name(), *(one.name() for one in first.children())]
        container.stop(timeout_s=60)

    assert re.search(r"^Uid:\s+10001\s+10001\s+10001\s+10001$", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert parents == ["tini", "ocr-worker"]
    assert others


def test_only_the_scratch_volume_can_be_written(engine: Engine, image: str) -> None:
    places = "/ /tmp /var/tmp /run /opt/ocr-worker /usr/share/sbom /scratch"
    script = f"for place in {places}; do touch $place/x 2>/dev/null && echo $place; done; true"

    assert engine.run(image, "-c", script, entry_point="/bin/sh").stdout.split() == ["/scratch"]


def test_the_health_check_holds_in_a_worker_at_work_and_not_without_a_scratch_volume(
    world: World, engine: Engine, image: str
) -> None:
    found = engine.inspect_image(image)
    # docker has it in one place, podman in the other.
    (form, *command) = (found["Config"].get("Healthcheck") or found["Healthcheck"])["Test"]
    with Container(engine, image, world.worker_environment(), "run", "--forever") as container:
        container.wait_for_event("worker.started")
        well = container.execute(*command)
        container.stop(timeout_s=60)
    ill = engine.run(image, *command[1:], OCR_SCRATCH_DIR="/opt")

    assert form == "CMD"
    assert command[0] == "ocr-worker"
    assert well.returncode == 0, well.stdout + well.stderr
    assert ill.returncode == 2
    assert "It cannot be written" in ill.stdout


# --- what it is -----------------------------------------------------------------


def test_the_image_says_what_it_is_and_how_it_is_stopped(engine: Engine, image: str) -> None:
    config = engine.inspect_image(image)["Config"]
    labels = config["Labels"]

    assert labels["org.opencontainers.image.version"] == image.rpartition(":")[2]
    assert re.fullmatch(r"[0-9a-f]{40}", labels["org.opencontainers.image.revision"])
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert list(config["Volumes"]) == ["/scratch"]
    assert config["Entrypoint"][0] == "/usr/bin/tini"
    # What the task definition says, and what the image does by itself, are the same.
    assert tuple(config["Cmd"]) == load_resources().task_definition.container.command


def test_the_image_holds_the_worker_and_the_contract_and_nothing_else_of_ours(
    engine: Engine, image: str
) -> None:
    ours = engine.run(image, f"{SITE_PACKAGES}/pdf_ops", entry_point="/bin/ls").stdout.split()
    installed = engine.run(image, SITE_PACKAGES, entry_point="/bin/ls").stdout.split()

    assert set(ours) - {"__pycache__"} == {"__init__.py", "contract"}
    assert not [name for name in installed if name.startswith(("airflow", "pip", "pytest", "setuptools"))]


def test_the_bill_of_materials_is_what_is_installed(engine: Engine, image: str) -> None:
    bill = json.loads(engine.run(image, SBOM, entry_point="/bin/cat").stdout)
    listed = engine.run(
        image, "-W", "-f", "${Package} ${Version}\n", entry_point="/usr/bin/dpkg-query"
    ).stdout
    lock = (REPOSITORY / "locks" / "worker.txt").read_text(encoding="utf-8")
    # A package may be there twice, for two Pythons.
    locked = set(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))

    found: dict[str, dict[str, str]] = {"deb": {}, "pypi": {}}
    for component in bill["components"]:
        if component["type"] == "library":
            kind = component["purl"].removeprefix("pkg:").partition("/")[0]
            found[kind][component["name"]] = component["version"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert found["deb"] == dict(line.split() for line in listed.splitlines())
    assert set(found["pypi"].items()) <= locked
    assert {"tesserocr", "pypdfium2", "pyarrow", "aiobotocore"} <= found["pypi"].keys()
