"""The ledger's single decisions; ``test_ledger_model`` has what becomes of them together."""

from __future__ import annotations

import asyncio

import pytest
from botocore.exceptions import ClientError
from tests.support.tables import Tables, run

from ocr_worker import conditional
from ocr_worker.ledger import AlreadyRead, Commit, HeldElsewhere, Lease, LeaseLostError, Ledger
from pdf_ops.contract.documents import DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.runs import Counters
from pdf_ops.contract.state import DocumentState

NOW_S, LEASE_S = 1_000_000.0, 100.0


def ledger_on(tables, *, ahead_s=0.0):
    return Ledger(
        tables,
        state_table="state",
        runs_table="runs",
        worker_id="worker",
        lease_s=LEASE_S,
        now_s=lambda: NOW_S + ahead_s,
    )


def claim(ledger, *, run_id="run", etag="etag", is_forced=False):
    call = ledger.claim(
        "a.pdf", etag=etag, size=1, version_id=None, config_hash="config", run_id=run_id, is_forced=is_forced
    )
    return run(call)


def committing(ledger, lease, status=DocumentStatus.DONE, error=None):
    return ledger.commit(
        lease,
        status=status,
        counters=Counters.of(status),
        pages=0,
        total_pages=None,
        output_uri=None,
        content_type=None,
        error=error,
    )


def state_in(tables):
    return DocumentState.from_item(tables.items["state", "a.pdf"])


class SentTwice(Tables):
    """The first answer is lost, and botocore sends the same call again."""

    async def update_item(self, **call):
        await super().update_item(**call)
        return await super().update_item(**call)


def test_a_claim_whose_answer_was_lost_is_still_ours():
    tables = SentTwice()

    lease = claim(ledger_on(tables))

    assert isinstance(lease, Lease)
    assert (lease.unfinished, state_in(tables).lease_token) == (1, lease.token)


def test_a_document_that_another_worker_has_is_not_claimed():
    tables = Tables()
    claim(ledger_on(tables))

    held = claim(ledger_on(tables, ahead_s=1.0))

    assert held == HeldElsewhere(LEASE_S - 1)


@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0])
def test_a_clock_that_is_off_holds_no_document_for_longer_than_a_lease(ahead_s):
    tables = Tables()
    claim(ledger_on(tables, ahead_s=ahead_s))

    assert isinstance(claim(ledger_on(tables)), Lease)


def test_a_heartbeat_that_is_late_does_not_take_back_what_was_released():
    tables = Tables()
    ledger = ledger_on(tables)
    lease = claim(ledger)
    run(ledger.release(lease, PdfOpsError(ErrorKind.LOST_CANCELLED), wasted_ms=0))

    with pytest.raises(LeaseLostError):
        run(ledger.extend(lease, pages_processed=0, total_pages=None))

    assert isinstance(claim(ledger), Lease)


def test_what_a_run_has_closed_stays_closed_in_it_whatever_the_object_is_now():
    tables = Tables()
    ledger = ledger_on(tables)
    run(committing(ledger, claim(ledger, etag="as it was read")))

    assert isinstance(claim(ledger, etag="as it was listed"), AlreadyRead)
    assert isinstance(claim(ledger, etag="as it was listed", run_id="another"), Lease)


def test_an_outcome_stays_when_its_document_is_read_again_after_another_run():
    tables = Tables()
    ledger = ledger_on(tables)
    run(committing(ledger, claim(ledger, etag="first")))
    run(committing(ledger, claim(ledger, etag="second", run_id="another")))
    error = PdfOpsError(ErrorKind.SOURCE_NOT_FOUND)

    again = run(committing(ledger, claim(ledger, etag="first"), DocumentStatus.FAILED, error))

    assert again is Commit.COUNTED_BEFORE
    (outcome,) = [
        item for place, item in tables.items.items() if "run#" in place[1] and place[2].startswith("doc")
    ]
    assert outcome["status"] == {"S": "done"}


def test_a_lease_lost_in_the_second_half_of_a_commit_is_a_lost_lease():
    """Not an error that nobody knows, which would end the worker."""

    class TakenOver(Tables):
        async def transact_write_items(self, **call):
            try:
                return await super().transact_write_items(**call)
            finally:
                self.items["state", "a.pdf"] |= {"lease_token": {"S": "another"}}

    tables = TakenOver()
    ledger = ledger_on(tables)
    run(committing(ledger, claim(ledger, etag="first")))
    run(committing(ledger, claim(ledger, etag="second", run_id="another")))
    lease = claim(ledger, etag="first")

    with pytest.raises(LeaseLostError):
        run(committing(ledger, lease))


def test_a_dead_letter_is_noted_and_forgotten_with_the_next_claim():
    tables = Tables()
    ledger = ledger_on(tables)
    error = PdfOpsError(ErrorKind.CORRUPT_TRUNCATED)
    run(committing(ledger, claim(ledger), DocumentStatus.FAILED, error))
    assert not state_in(tables).is_dead_letter

    run(ledger.note_dead_letter("a.pdf", "run"))
    assert state_in(tables).is_dead_letter

    claim(ledger, run_id="another")
    run(ledger.note_dead_letter("a.pdf", "run"))
    assert not state_in(tables).is_dead_letter


class Conflicting(Tables):
    """Another transaction is in the way for a number of calls."""

    def __init__(self, times):
        super().__init__()
        self.times, self.calls = times, 0

    async def transact_write_items(self, **call):
        self.calls += 1
        if self.calls <= self.times:
            reasons = [{"Code": "None"}, {"Code": "None"}, {"Code": "TransactionConflict"}]
            answer = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(answer, "TransactWriteItems")
        return await super().transact_write_items(**call)


def test_a_transaction_in_conflict_with_another_is_tried_again(monkeypatch):
    monkeypatch.setattr(conditional, "PAUSE_S", 0.0)
    tables = Conflicting(3)
    ledger = ledger_on(tables)

    assert asyncio.run(committing(ledger, claim(ledger))) is Commit.COUNTED
    assert tables.calls == 4


def test_a_conflict_that_does_not_pass_is_an_error_of_the_tables(monkeypatch):
    monkeypatch.setattr(conditional, "PAUSE_S", 0.0)
    tables = Conflicting(100)
    ledger = ledger_on(tables)

    with pytest.raises(PdfOpsError) as raised:
        asyncio.run(committing(ledger, claim(ledger)))

    assert raised.value.kind is ErrorKind.TARGET_DYNAMODB
    assert tables.calls == conditional.ATTEMPTS


def test_commits_of_one_worker_do_not_get_in_each_others_way():
    """They add to the same counters, and DynamoDB refuses two transactions at once on one item."""

    class Exclusive(Tables):
        is_busy = False

        async def transact_write_items(self, **call):
            assert not self.is_busy
            self.is_busy = True
            await asyncio.sleep(0.01)
            self.is_busy = False
            return await super().transact_write_items(**call)

    async def commit_both():
        ledger = ledger_on(Exclusive())
        leases = [
            await ledger.claim(
                key, etag="e", size=1, version_id=None, config_hash="c", run_id="run", is_forced=False
            )
            for key in ("a.pdf", "b.pdf")
        ]
        return await asyncio.gather(*(committing(ledger, lease) for lease in leases))

    assert asyncio.run(commit_both()) == [Commit.COUNTED, Commit.COUNTED]
