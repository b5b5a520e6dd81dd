from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdf_ops.contract.errors import (
    MAX_DETAIL_CHARS,
    MAX_LAST_ERROR_BYTES,
    CountedAs,
    ErrorClass,
    ErrorKind,
    PdfOpsError,
    Phase,
    Scope,
    cut_utf8,
    sanitise,
)
from pdf_ops.contract.messages import MessageError

EVERY_KIND = pytest.mark.parametrize("kind", ErrorKind, ids=lambda kind: kind.name)
FINAL = {ErrorClass.POLICY, ErrorClass.ENCRYPTED, ErrorClass.CORRUPT, ErrorClass.BOMB}
PASSING = {ErrorClass.TIMEOUT, ErrorClass.OOM, ErrorClass.CRASH, ErrorClass.TARGET}

# Written out, so that a kind that is renamed or dropped by accident is noticed: the names are stored in
# tables and Parquet files that outlive the code.
CODES = {
    "SOURCE": "not_found access_denied changed_during_read throttled unavailable invalid_message unreadable",
    "POLICY": "too_large too_many_pages unsupported_type",
    "ENCRYPTED": "certificate_required password_required password_wrong",
    "CORRUPT": "empty_file not_a_pdf truncated no_pages unreadable page_unreadable image_unreadable",
    "BOMB": "pixels decompression recursion text",
    "TIMEOUT": "page document open",
    "OOM": "page document",
    "CRASH": "page document poison",
    "ENGINE": "missing_language missing_engine misconfigured bad_answer",
    "TARGET": "s3_put dynamodb disk opensearch",
    "LOST": "worker_killed spot cancelled",
}


def test_stored_error_names_stay_as_they_are():
    stored = {f"{error_class}/{code}" for error_class, codes in CODES.items() for code in codes.split()}
    assert {kind.label for kind in ErrorKind} == stored


def test_every_error_class_has_a_kind():
    assert {kind.error_class for kind in ErrorKind} == set(ErrorClass)


def test_no_kind_is_an_alias_of_another():
    assert len(ErrorKind.__members__) == len(list(ErrorKind)) == len({kind.label for kind in ErrorKind})


@EVERY_KIND
def test_every_error_kind_is_named_after_its_class_and_code(kind):
    assert kind.name == f"{kind.error_class}_{kind.code}".upper()


@EVERY_KIND
def test_every_error_kind_says_what_happened_and_what_to_do_in_one_line(kind):
    for sentence in (kind.meaning, kind.what_to_do):
        assert sentence == sanitise(sentence)
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert len(sentence) > 15
    assert kind.meaning != kind.what_to_do


@EVERY_KIND
def test_every_error_kind_is_found_by_its_label_and_by_its_class_and_code(kind):
    assert ErrorKind.parse(kind.label) is kind
    assert ErrorKind.of(kind.error_class, kind.code) is kind
    assert ErrorKind.of(kind.error_class.value, kind.code) is kind


@pytest.mark.parametrize(
    "label", ["", "CORRUPT", "CORRUPT/", "corrupt/truncated", "CORRUPT/truncated ", "LOST/page"]
)
def test_an_unknown_error_kind_is_refused_with_the_accepted_ones(label):
    with pytest.raises(ValueError, match="accepted: ") as caught:
        ErrorKind.parse(label)
    assert all(kind.label in str(caught.value) for kind in ErrorKind)


@EVERY_KIND
def test_losing_a_worker_is_always_retried_and_never_charged_to_the_document(kind):
    lost = kind.error_class is ErrorClass.LOST
    assert (kind.counted_as is CountedAs.RETRIED) == lost
    if lost:
        assert kind.retryable
        assert not kind.counts_as_attempt


@EVERY_KIND
def test_documents_outside_the_policy_are_skipped_and_nothing_else_is(kind):
    assert (kind.counted_as is CountedAs.SKIPPED) == (kind.error_class is ErrorClass.POLICY)


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind.scope is Scope.PAGE])
def test_a_page_error_never_fails_a_whole_document(kind):
    assert kind.counted_as is CountedAs.PARTIAL


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind.error_class in FINAL])
def test_what_cannot_change_is_not_tried_again(kind):
    assert not kind.retryable


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind.error_class in PASSING])
def test_what_may_pass_is_tried_again(kind):
    # A poison message has had all its tries.
    assert kind.retryable == (kind is not ErrorKind.CRASH_POISON)


def test_a_missing_object_or_right_is_final_and_a_busy_source_is_not():
    assert not ErrorKind.SOURCE_NOT_FOUND.retryable
    assert not ErrorKind.SOURCE_ACCESS_DENIED.retryable
    assert ErrorKind.SOURCE_THROTTLED.retryable
    assert ErrorKind.SOURCE_UNAVAILABLE.retryable
    assert ErrorKind.SOURCE_CHANGED_DURING_READ.retryable


@EVERY_KIND
def test_what_would_fail_every_document_stops_the_fleet_and_charges_none(kind):
    stops = kind.error_class is ErrorClass.ENGINE and kind is not ErrorKind.ENGINE_BAD_ANSWER
    assert (kind.scope is Scope.FLEET) == stops
    if stops:
        assert not kind.counts_as_attempt


def test_a_failed_index_leaves_the_documents_outcome_alone():
    unchanged = [kind for kind in ErrorKind if kind.counted_as is CountedAs.UNCHANGED]
    assert unchanged == [ErrorKind.TARGET_OPENSEARCH]


def test_an_error_reads_as_label_then_detail_then_remedy():
    error = PdfOpsError(ErrorKind.CORRUPT_TRUNCATED, "no %%EOF in the last 1,024 bytes")
    assert str(error) == (
        "CORRUPT/truncated: no %%EOF in the last 1,024 bytes. "
        "Compare its size with the original and upload it again."
    )


@EVERY_KIND
def test_an_error_without_a_detail_tells_its_kinds_meaning(kind):
    assert str(PdfOpsError(kind)) == f"{kind.label}: {kind.meaning} {kind.what_to_do}"


def test_an_error_happens_in_its_kinds_phase_unless_another_is_named():
    assert PdfOpsError(ErrorKind.BOMB_PIXELS).phase is Phase.RENDER
    assert PdfOpsError(ErrorKind.BOMB_PIXELS, phase=Phase.PROBE).phase is Phase.PROBE


@pytest.mark.parametrize(
    "error",
    [
        PdfOpsError(ErrorKind.TIMEOUT_PAGE, "page 7 of 9", phase=Phase.RENDER),
        MessageError("the body is not JSON"),
    ],
    ids=["base", "subclass"],
)
@pytest.mark.parametrize(
    "clone",
    [
        *(
            lambda error, p=p: pickle.loads(pickle.dumps(error, p))
            for p in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
        copy.copy,
        copy.deepcopy,
    ],
)
def test_an_error_survives_pickling_and_copying(error, clone):
    error.add_note("in slice 3")
    cloned = clone(error)
    assert type(cloned) is type(error)
    assert cloned is not error
    assert (cloned.kind, cloned.detail, cloned.phase) == (error.kind, error.detail, error.phase)
    assert str(cloned) == str(error)
    assert cloned.__notes__ == error.__notes__


@EVERY_KIND
def test_a_pickled_kind_holds_its_label_and_not_its_sentences(kind):
    pickled = pickle.dumps(kind)
    assert pickle.loads(pickled) is kind
    assert kind.meaning.encode() not in pickled


@pytest.mark.parametrize(
    "hostile",
    [
        "two\nlines",
        "\x1b[2Jwiped",
        "\r\nERROR forged",
        "nul\x00",
        "\u202egnp.exe",
        "\u2028",
        "\ud800",
        "\x85",
        "\t",
    ],
)
def test_a_detail_never_carries_control_characters(hostile):
    detail = PdfOpsError(ErrorKind.CRASH_PAGE, f"a{hostile}b").detail
    assert detail.isprintable()
    assert detail.startswith("a")
    assert detail.endswith("b")
    detail.encode()


@given(st.text(), st.sampled_from(ErrorKind))
def test_a_detail_is_printable_and_short_whatever_it_quotes(detail, kind):
    error = PdfOpsError(kind, detail * 40)
    assert error.detail.isprintable()
    assert len(error.detail) <= MAX_DETAIL_CHARS
    assert sanitise(error.detail) == error.detail
    assert len(error.last_error.encode()) <= MAX_LAST_ERROR_BYTES
    assert str(error).startswith(error.last_error)


def test_a_plain_detail_is_kept_word_for_word():
    assert sanitise("page 3: größe 12") == "page 3: größe 12"
    assert sanitise("x" * MAX_DETAIL_CHARS) == "x" * MAX_DETAIL_CHARS
    assert sanitise("x" * (MAX_DETAIL_CHARS + 1)) == "x" * (MAX_DETAIL_CHARS - 1) + "…"


def test_the_longest_last_error_fills_its_kilobyte_and_no_more():
    error = PdfOpsError(ErrorKind.CRASH_PAGE, "\N{GRINNING FACE}" * 600)
    assert MAX_LAST_ERROR_BYTES - 4 < len(error.last_error.encode()) <= MAX_LAST_ERROR_BYTES


def test_a_cut_never_splits_a_character():
    assert cut_utf8("aé", 2) == "a"
    assert cut_utf8("aé", 3) == "aé"


def test_a_huge_detail_is_cut_before_it_is_cleaned():
    assert sanitise(" " * (4 * MAX_DETAIL_CHARS) + "never looked at") == ""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=abc&x=1 gone",
            "https://b.s3.amazonaws.com/k?*** gone",
        ),
        ('at "http://me:pass@host:80/p"', 'at "http://***@host:80/p"'),
        ("s3://bucket/key?really.pdf", "s3://bucket/key?really.pdf"),
        ("mail a@b.c about http://host/", "mail a@b.c about http://host/"),
    ],
)
def test_a_detail_keeps_no_access_that_a_url_gives(said, shown):
    assert PdfOpsError(ErrorKind.SOURCE_UNAVAILABLE, said).detail == shown
