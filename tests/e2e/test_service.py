"""The worker as a service: what can be relied on when messages, machines and objects misbehave."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.world import World

from pdf_ops.contract.fingerprint import OcrMode, ReadingConfig
from samples import documents as made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "manual__2026-01-01T00:00:00+00:00"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def world(local_aws: object) -> Iterator[World]:
    with World(local_aws) as world:
        yield world


@pytest.fixture
def text(tmp_path: Path) -> bytes:
    return made.text_pdf(tmp_path / "text.pdf", 3).read_bytes()


@pytest.fixture
def long_scan(tmp_path: Path) -> bytes:
    return made.scan_pdf(tmp_path / "long.pdf", [made.scan()] * 30).read_bytes()


def test_a_run_is_read_counted_once_and_acknowledged(world: World, tmp_path: Path, text: bytes) -> None:
    scan = made.scan_pdf(tmp_path / "s.pdf", [made.scan()]).read_bytes()
    world.start_run(RUN, 3)
    world.order(RUN, "a.pdf", text)
    world.order(RUN, "b/scan.pdf", scan)
    world.order(RUN, "c.pdf", b"")

    log = world.work()

    assert world.outcomes(RUN) == {"a.pdf": "done", "b/scan.pdf": "done", "c.pdf": "failed"}
    counted = world.counters(RUN)
    assert (counted.done, counted.failed, counted.pages, counted.pages_ocr) == (2, 1, 4, 1)
    state = world.state("a.pdf")
    assert state is not None
    assert (state.status, state.pages_processed, state.total_pages, state.attempts) == ("done", 3, 3, 0)
    assert sorted((row["source_uri"], row["page"]) for row in world.pages()) == [
        (f"s3://{world.input}/a.pdf", 1),
        (f"s3://{world.input}/a.pdf", 2),
        (f"s3://{world.input}/a.pdf", 3),
        (f"s3://{world.input}/b/scan.pdf", 1),
    ]
    assert sorted(row["status"] for row in world.manifest()) == ["done", "done", "failed"]
    assert world.messages_left() == 0
    assert [event["event"] for event in log][-1] == "worker.stopped"


def test_a_final_failure_goes_to_the_dead_letters_at_once_with_its_class(world: World) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", b"<html>")

    world.work()

    (letter,) = world.dead_letters()
    assert (letter["error_class"], letter["error_code"], letter["run_id"]) == ("CORRUPT", "not_a_pdf", RUN)
    assert "head -c 200" in letter["error_message"]
    assert json.loads(letter["body"])["s3_key"] == "a.pdf"
    state = world.state("a.pdf")
    assert state is not None
    assert (state.status, state.attempts, state.error_class) == ("failed", 1, "CORRUPT")


def test_what_failed_for_good_in_a_run_is_not_tried_again_in_it(world: World) -> None:
    world.start_run(RUN, 1)
    message = world.order(RUN, "a.pdf", b"<html>")
    world.work()

    world.send(message.to_json())
    log = world.work()

    assert world.counters(RUN).failed == 1
    assert len(world.dead_letters()) == 1
    assert "document.repeated" in [event["event"] for event in log]
    assert {(row["status"], row["error_code"]) for row in world.manifest()} == {("failed", "not_a_pdf")}
    assert world.messages_left() == 0


def test_every_message_delivered_twice_counts_once(world: World, text: bytes) -> None:
    world.start_run(RUN, 5)
    for number in range(5):
        message = world.order(RUN, f"{number}.pdf", text + b"%" * number)
        world.send(message.to_json())

    world.work()

    assert set(world.outcomes(RUN).values()) == {"done"}
    assert world.counters(RUN).done == 5
    assert len(world.pages()) == 15
    assert world.messages_left() == 0


def test_a_worker_that_is_killed_loses_nothing_and_is_not_held_against_the_document(
    world: World, long_scan: bytes
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", long_scan)
    short = {"LEASE_S": 4, "VISIBILITY_S": 4}

    first = world.start_worker(**short)
    world.wait_for_event(first, "document.claimed")
    time.sleep(2)
    world.kill(first)
    world.work(**short, IDLE_S=15)

    assert world.outcomes(RUN) == {"a.pdf": "done"}
    assert world.counters(RUN).done == 1
    assert [row["page"] for row in world.pages()] == list(range(1, 31))
    state = world.state("a.pdf")
    assert state is not None
    assert state.attempts == 0


def test_progress_shows_while_a_document_is_being_read(world: World, long_scan: bytes) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", long_scan)

    worker = world.start_worker(LEASE_S=3)
    world.wait_for_event(worker, "document.claimed")
    seen = []
    for _ in range(40):
        time.sleep(0.5)
        state = world.state("a.pdf")
        assert state is not None
        seen.append(state.pages_processed)
        if state.status == "processing" and 0 < state.pages_processed < 30:
            break
    world.kill(worker)

    assert 0 < seen[-1] < 30
    assert state.total_pages == 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_stop_gives_back_what_it_cannot_finish(
    world: World, long_scan: bytes, number: signal.Signals
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", long_scan)

    worker = world.start_worker(STOP_TIMEOUT_S=2)
    world.wait_for_event(worker, "document.claimed")
    time.sleep(1)
    worker.send_signal(number)
    worker.communicate(timeout=30)

    assert worker.returncode == 0
    state = world.state("a.pdf")
    assert state is not None
    assert (state.attempts, state.lease_until, state.unfinished) == (0, 0, 0)
    world.work()
    assert world.outcomes(RUN) == {"a.pdf": "done"}
    assert world.counters(RUN).done == 1


def test_a_document_that_kills_its_workers_is_closed_before_the_queue_gives_up(
    world: World, long_scan: bytes
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", long_scan)
    short = {"LEASE_S": 3, "VISIBILITY_S": 3, "MAX_UNFINISHED": 2}

    for _ in range(2):
        worker = world.start_worker(**short, IDLE_S=8)
        world.wait_for_event(worker, "document.claimed")
        world.kill(worker)
    # Longer than the killed worker's last long poll, to which the queue may still hand the message.
    world.work(**short, IDLE_S=15)

    assert world.outcomes(RUN) == {"a.pdf": "failed"}
    (letter,) = world.dead_letters()
    assert (letter["error_class"], letter["error_code"]) == ("CRASH", "poison")
    assert world.messages_left() == 0


def test_two_workers_at_once_on_one_document_count_it_once(world: World, long_scan: bytes) -> None:
    world.start_run(RUN, 1)
    message = world.order(RUN, "a.pdf", long_scan)
    world.send(message.to_json())

    workers = [world.start_worker(IDLE_S=5) for _ in range(2)]
    for worker in workers:
        worker.communicate(timeout=120)

    assert world.counters(RUN).done == 1
    assert len(world.pages()) == 30
    assert world.messages_left() == 0


def test_a_document_that_another_run_has_read_is_skipped_in_this_one(world: World, text: bytes) -> None:
    other = "scheduled__other"
    for run in (RUN, other):
        world.start_run(run, 1)
    message = world.order(RUN, "a.pdf", text)
    world.work()

    world.send(message.to_json().replace(RUN, other))
    world.work()

    assert world.outcomes(RUN) == {"a.pdf": "done"}
    assert world.outcomes(other) == {"a.pdf": "skipped"}
    assert world.counters(other).pages == 0


def test_a_forced_run_reads_again_and_only_once(world: World, text: bytes) -> None:
    forced = "manual__forced"
    world.start_run(RUN, 1)
    world.start_run(forced, 1, is_forced=True)
    message = world.order(RUN, "a.pdf", text)
    world.work()

    for _ in range(2):
        world.send(message.to_json().replace(RUN, forced))
    world.work()

    assert world.outcomes(forced) == {"a.pdf": "done"}
    assert world.counters(forced).pages == 3
    assert {row["run_id"] for row in world.pages()} == {forced}


def test_each_run_is_read_with_its_own_settings(world: World, tmp_path: Path) -> None:
    body = made.scan_pdf(tmp_path / "s.pdf", [made.scan()]).read_bytes()
    world.start_run("without", 1, reading=ReadingConfig(ocr=OcrMode.OFF))
    world.start_run("with", 1)
    world.order("without", "a.pdf", body)
    world.order("with", "b.pdf", body)

    world.work()

    assert {row["source_uri"][-5:]: row["method"] for row in world.pages()} == {
        "a.pdf": "none",
        "b.pdf": "ocr",
    }


def test_all_five_forms_of_message_are_read(world: World, text: bytes) -> None:
    keys = ["simple.pdf", "file id.pdf", "sent by+S3 ü.pdf", "bridge.pdf", "own.pdf"]
    for key in keys[:4]:
        world.put(key, text)
    bucket = {"name": world.input}
    world.send({"s3_key": keys[0]})
    world.send({"s3Key": keys[1], "fileId": 7})
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": bucket, "object": {"key": "sent+by%2BS3+%C3%BC.pdf"}},
    }
    world.send({"Records": [record]})
    detail = {"bucket": bucket, "object": {"key": keys[3]}}
    world.send({"source": "aws.s3", "detail-type": "Object Created", "detail": detail})
    world.order(RUN, keys[4], text)
    world.send({"Event": "s3:TestEvent"})
    world.send("nonsense")

    world.work()

    statuses = {key: state.status for key in keys if (state := world.state(key)) is not None}
    assert statuses == dict.fromkeys(keys, "done")
    (letter,) = world.dead_letters()
    assert letter["error_code"] == "invalid_message"
    assert world.messages_left() == 0


def test_an_object_that_is_not_there_yet_is_waited_for(world: World, text: bytes) -> None:
    world.send({"s3_key": "late.pdf"})
    worker = world.start_worker(IDLE_S=4, MAX_RETRIES=6)
    world.wait_for_event(worker, "message.put_off")

    world.put("late.pdf", text)
    worker.communicate(timeout=60)

    state = world.state("late.pdf")
    assert state is not None
    assert state.status == "done"
    assert not world.dead_letters()


def test_an_object_that_never_comes_is_not_found(world: World) -> None:
    world.send({"s3_key": "never.pdf"})

    world.work(MAX_RETRIES=3)

    (letter,) = world.dead_letters()
    assert (letter["error_class"], letter["error_code"]) == ("SOURCE", "not_found")
    state = world.state("never.pdf")
    assert state is not None
    assert (state.status, state.attempts) == ("failed", 3)


def test_an_object_that_changed_since_it_was_listed_is_read_as_it_is_now(
    world: World, tmp_path: Path, text: bytes
) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", text)
    newer = made.text_pdf(tmp_path / "n.pdf", [["a newer version of this document"] * 9]).read_bytes()
    etag = world.put("a.pdf", newer)

    world.work()

    (row,) = world.pages()
    assert row["text"].startswith("a newer version")
    assert row["source_etag"] == etag
    assert world.counters(RUN).done == 1


def test_a_version_that_is_asked_for_is_the_one_that_is_read(
    world: World, tmp_path: Path, text: bytes
) -> None:
    world.s3.put_bucket_versioning(Bucket=world.input, VersioningConfiguration={"Status": "Enabled"})
    old = world.s3.put_object(Bucket=world.input, Key="a.pdf", Body=text)
    newer = made.text_pdf(tmp_path / "n.pdf", 1).read_bytes()
    world.put("a.pdf", newer)
    body = {"v": 1, "s3_key": "a.pdf", "bucket": world.input, "version_id": old["VersionId"]}

    world.send(body)
    world.work()

    assert len(world.pages()) == 3
    assert {row["source_version_id"] for row in world.pages()} == {old["VersionId"]}


def test_a_large_object_comes_in_ranges_and_whole(world: World, tmp_path: Path) -> None:
    body = made.text_pdf(tmp_path / "a.pdf", 2).read_bytes() + b"\n" * 40_000_000
    world.order(RUN, "large.pdf", body)

    world.work()

    rows = world.pages()
    assert [row["page"] for row in rows] == [1, 2]
    assert rows[0]["source_size"] == len(body)


def test_a_worker_that_cannot_make_sense_of_an_item_ends_with_an_error(world: World, text: bytes) -> None:
    """Going quiet would let the run wait for a document that nobody reads."""
    world.order(RUN, "a.pdf", text)
    soon_ms = int(time.time() * 1000) + 60_000
    strange = {"s3_key": {"S": "a.pdf"}, "status": {"S": "strange"}, "lease_until": {"N": str(soon_ms)}}
    world.dynamodb.put_item(TableName=world.state_table, Item=strange)

    worker = world.start_worker()
    output, _ = worker.communicate(timeout=60)

    assert worker.returncode != 0
    assert "worker.crashed" in output
    assert world.messages_left() == 1


def test_the_log_is_json_and_holds_metrics(world: World, text: bytes) -> None:
    world.start_run(RUN, 1)
    world.order(RUN, "a.pdf", text)

    log = world.work()

    done = next(event for event in log if event["event"] == "document.done")
    assert (done["s3_key"], done["run_id"], done["pages"]) == ("a.pdf", RUN, 3)
    metrics = next(event for event in log if event["event"] == "metrics")
    assert (metrics["Pages"], metrics["DocumentsDone"]) == (3, 1)
    names = {metric["Name"] for metric in metrics["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert {"Pages", "TextP50", "PeakMemory", "QueueLag"} <= names


def test_no_temporary_files_are_left(world: World, tmp_path: Path, text: bytes) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    world.order(RUN, "a.pdf", text)

    world.work(OCR_SCRATCH_DIR=scratch)

    assert not list(scratch.iterdir())


def test_a_worker_that_runs_forever_waits_for_more_until_it_is_told_to_stop(
    world: World, text: bytes
) -> None:
    world.start_run(RUN, 2)
    worker = world.start_worker("--forever", IDLE_S=0)
    for name in ("a.pdf", "b.pdf"):
        world.order(RUN, name, text)
        world.wait_for_event(worker, "document.done")
        time.sleep(2)
        assert worker.poll() is None, "an empty queue does not end it"

    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)

    assert worker.returncode == 0
    assert world.outcomes(RUN) == {"a.pdf": "done", "b.pdf": "done"}
