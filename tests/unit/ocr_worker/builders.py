"""Rows and answers that several of these tests need, each with as little in it as will do."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import settings

from ocr_worker.protocol import PageAnswer
from ocr_worker.reading import Reading
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import ErrorKind, PdfOpsError
from pdf_ops.contract.pages import Method, MethodReason, PageRow, PageStatus

READ_AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

# The same examples each time, and as much time for each as a busy machine needs.
STEADY = settings(derandomize=True, deadline=None)


def page_row(**fields):
    text = fields.get("text", "")
    return PageRow(
        **{
            "doc_id": "ab" * 32,
            "source_uri": "file:///in/a.pdf",
            "source_size": 1,
            "page": 1,
            "page_count": 1,
            "text": text,
            "char_count": len(text),
            "method": Method.TEXT_LAYER,
            "method_reason": MethodReason.GOOD_TEXT_LAYER,
            "status": PageStatus.OK,
            "languages": "eng",
            "config_hash": "0" * 16,
            "read_at": READ_AT,
            **fields,
        }
    )


def document_row(status=DocumentStatus.DONE, error=None, **fields):
    if error is not None:
        fields = {
            "error_class": error.kind.error_class.value,
            "error_code": error.kind.code,
            "error_phase": error.phase.value,
            "error_message": str(error),
            **fields,
        }
    return DocumentRow(
        **{
            "source_uri": "file:///in/a.pdf",
            "status": status,
            "languages": "eng",
            "config_hash": "0" * 16,
            "read_at": READ_AT,
            **fields,
        }
    )


def reading(text="some text", **fields):
    return Reading(
        **{
            "text": text,
            "method": Method.TEXT_LAYER,
            "reason": MethodReason.GOOD_TEXT_LAYER,
            "layer_chars": len(text),
            **fields,
        }
    )


def good_page(index, text="some text", *, total_ms=1.0, **fields):
    return PageAnswer(index, reading(text, **fields), None, total_ms, 1.0)


def error_page(index, kind=ErrorKind.CORRUPT_PAGE_UNREADABLE, detail=""):
    return PageAnswer(index, None, PdfOpsError(kind, detail), 1.0, 1.0)
