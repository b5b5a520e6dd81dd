"""The API's small parts: ids, cursors, keys, forms, windows, queries. The running API is tests/api's."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdf_ops.api.access import ApiKeyError, Scope, hash_key, new_key, parse_keys
from pdf_ops.api.doorbell import MARGIN_S, Visit
from pdf_ops.api.forms import FormFile
from pdf_ops.api.ids import Cursor, decode, encode
from pdf_ops.api.listing import Query
from pdf_ops.api.mounted import configured
from pdf_ops.api.problems import ProblemError
from pdf_ops.api.settings import ApiSettings, load
from pdf_ops.contract.state import new_listing_key
from pdf_ops.exceptions import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOON = datetime(2026, 1, 2, 12, 0, 7, tzinfo=UTC)


@given(st.text(min_size=1, max_size=300))
def test_every_key_has_an_id_that_tells_it_and_fits_into_a_path(key: str):
    try:
        key.encode()
    except UnicodeEncodeError:
        return  # No S3 key.
    assert decode(encode(key)) == key
    assert set(encode(key)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.text(max_size=60))
def test_what_is_no_id_is_refused_and_nothing_else_happens(text: str):
    with contextlib.suppress(ValueError):
        assert encode(decode(text)) == text


@given(st.text(max_size=60))
def test_what_is_no_cursor_is_422(text: str):
    with pytest.raises(ProblemError) as refused:
        Cursor.parse(text, "created_at_asc")
    assert refused.value.status == 422


def test_a_cursor_says_where_and_in_which_order():
    cursor = Cursor("2026-01-01T00:00:00.000Z#ab", "created_at_asc", 3)

    assert Cursor.parse(str(cursor), "created_at_asc") == cursor
    with pytest.raises(ProblemError):
        Cursor.parse(str(cursor), "created_at_desc")


def test_only_the_hash_of_a_key_is_kept():
    key, entry = new_key("alice", frozenset({Scope.READ, Scope.UPLOAD}))

    assert key not in str(entry)
    assert parse_keys(f"# ours\n{entry}\n\n")[hash_key(key)] == entry
    assert entry.scopes == {Scope.READ, Scope.UPLOAD}


@pytest.mark.parametrize("entry", ["alice", "alice:read", "alice:write:" + "0" * 64, "a b:read:" + "0" * 64])
def test_an_entry_that_is_no_key_is_refused_without_being_repeated(entry: str):
    with pytest.raises(ApiKeyError) as refused:
        parse_keys(entry)
    assert "0" * 64 not in str(refused.value)


def test_uploads_of_one_window_have_one_run_whoever_asks():
    visits = {Visit.of_window("uploads/", 10, NOON + timedelta(seconds=second)) for second in (-7, 0, 2)}

    [visit] = visits
    assert visit.run_id == "upload__2026-01-02T12:00:00Z"
    assert visit.prefix == "uploads/20260102T120000Z/"
    assert visit.run_after == datetime(2026, 1, 2, 12, 0, 10, tzinfo=UTC) + timedelta(seconds=MARGIN_S)
    assert visit.closes_at < visit.run_after
    assert Visit.of_window("uploads/", 10, NOON + timedelta(seconds=3)) != visit


def test_a_listing_from_to_holds_its_beginning_and_not_its_end():
    low, high = Query(limit=1, date_from=NOON, date_to=NOON + timedelta(hours=1)).bounds

    assert low <= new_listing_key("a", NOON) <= high
    assert not low <= new_listing_key("a", NOON + timedelta(hours=1)) <= high
    assert not low <= new_listing_key("a", NOON - timedelta(milliseconds=1)) <= high


def test_all_wrong_settings_are_named_at_once():
    with pytest.raises(SettingsError) as refused:
        load({"PDF_OPS_MAX_UPLOAD_MB": "much", "PDF_OPS_AIRFLOW_URL": "airflow"})
    assert "PDF_OPS_MAX_UPLOAD_MB" in str(refused.value)
    assert "PDF_OPS_AIRFLOW_URL" in str(refused.value)


def test_in_airflow_settings_may_be_in_its_configuration_and_the_environment_comes_first(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("AIRFLOW__PDF_OPS_API__MAX_UPLOAD_MB", "7")
    monkeypatch.setenv("AIRFLOW__PDF_OPS_API__RATE_CAPACITY", "8")
    monkeypatch.setenv("PDF_OPS_RATE_CAPACITY", "9")

    found = load(configured())

    assert (found.max_upload_mb, found.rate_capacity) == (7, 9)
    assert found.rate_refill_per_minute == ApiSettings().rate_refill_per_minute


def test_secrets_are_not_shown():
    shown = repr(load({"PDF_OPS_AIRFLOW_PASSWORD": "pssst", "PDF_OPS_REDIS_URL": "redis://:pssst@host"}))

    assert "pssst" not in shown


def read_form(body: bytes, cuts: list[int]) -> tuple[str, bytes]:
    """Read a form that arrives in pieces."""

    async def stream() -> AsyncIterator[bytes]:
        begin = 0
        for cut in [*sorted(cuts), len(body)]:
            yield body[begin:cut]
            begin = max(begin, cut)

    async def read() -> tuple[str, bytes]:
        form = FormFile("multipart/form-data; boundary=x", stream())
        content = b"".join([chunk async for chunk in form.chunks()])
        return form.filename, content

    return asyncio.run(read())


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="C:\\\\a\\\\letter.pdf"\r\n'
    b"Content-Type: application/pdf\r\n\r\n%PDF-\r\n--\r\n-x\r\n"
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="second.pdf"\r\n\r\nsecond\r\n--x--\r\n'
)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(FORM)), max_size=8))
def test_a_form_may_arrive_in_any_pieces(cuts: list[int]):
    assert read_form(FORM, cuts) == ("letter.pdf", b"%PDF-\r\n--\r\n-x")


@settings(deadline=None)
@given(st.integers(0, FORM.index(b"-x\r\n--x") + 2))
def test_a_form_that_ends_in_the_middle_is_422(length: int):
    with pytest.raises(ProblemError) as refused:
        read_form(FORM[:length], [])
    assert refused.value.status == 422
