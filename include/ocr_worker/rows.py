"""From what a page process answered to the rows that are written, and a document's summary.

Adds what only the main process knows: which document, which run, which worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ocr_worker.reading import Reading
from pdf_ops.contract.documents import DocumentRow, DocumentStatus
from pdf_ops.contract.errors import CountedAs, ErrorKind, PdfOpsError
from pdf_ops.contract.pages import Method, MethodReason, PageRow, PageStatus

if TYPE_CHECKING:
    from ocr_worker.protocol import PageAnswer
    from pdf_ops.contract.fingerprint import ReadingConfig

_NOT_READ = Reading(text="", method=Method.NONE, reason=MethodReason.NOT_READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document's identity, as far as it is known."""

    uri: str
    size: int | None = None
    doc_id: str | None = None
    etag: str | None = None
    version_id: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who reads, and how."""

    reading: ReadingConfig
    run_id: str | None = None
    worker_id: str | None = None
    attempt: int = 1


@dataclass(slots=True)
class DocumentTally:
    """Turns one document's answers into rows, and counts them."""

    source: Source
    provenance: Provenance
    open_ms: float = 0.0
    page_count: int | None = None
    _methods: dict[Method, int] = field(default_factory=lambda: dict.fromkeys(Method, 0))
    _errors: int = 0
    _characters: int = 0
    _cpu_ms: float = 0.0
    _confidences: float = 0.0
    _first_error: PdfOpsError | None = None
    _languages: str = field(init=False)
    _config_hash: str = field(init=False)

    def __post_init__(self) -> None:
        """Work out once what every row repeats."""
        self._languages = self.provenance.reading.languages_label
        self._config_hash = self.provenance.reading.config_hash

    def page_row(self, answer: PageAnswer, page_count: int) -> PageRow:
        """The row of one page."""
        source, provenance = self.source, self.provenance
        self._cpu_ms += answer.cpu_ms
        reading, error = answer.reading, answer.error
        if reading is None:
            reading = _NOT_READ
            error = error or PdfOpsError(ErrorKind.ENGINE_BAD_ANSWER)
            self._errors += 1
            self._first_error = self._first_error or error
        else:
            self._methods[reading.method] += 1
            self._characters += len(reading.text)
            self._confidences += reading.ocr_confidence or 0.0
        return PageRow(
            doc_id=source.doc_id or "",
            source_uri=source.uri,
            source_etag=source.etag,
            source_version_id=source.version_id,
            source_size=source.size or 0,
            page=answer.index + 1,
            page_count=page_count,
            text=reading.text,
            char_count=len(reading.text),
            method=reading.method,
            method_reason=reading.reason,
            layer_chars=reading.layer_chars,
            layer_bad_ratio=reading.layer_bad_ratio,
            layer_word_ratio=reading.layer_word_ratio,
            layer_invisible_ratio=reading.layer_invisible_ratio,
            layer_hidden_ratio=reading.layer_hidden_ratio,
            image_coverage=reading.image_coverage,
            ocr_confidence=reading.ocr_confidence,
            ocr_confidence_low=reading.ocr_confidence_low,
            ocr_words=reading.ocr_words,
            ocr_attempts=reading.ocr_attempts,
            width_pt=reading.width_pt,
            height_pt=reading.height_pt,
            rotation_declared=reading.rotation_declared,
            rotation_detected=reading.rotation_detected,
            dpi=reading.dpi,
            status=PageStatus.OK if error is None else PageStatus.ERROR,
            error_class=None if error is None else error.kind.error_class.value,
            error_code=None if error is None else error.kind.code,
            error_message=None if error is None else str(error),
            run_id=provenance.run_id,
            worker_id=provenance.worker_id,
            attempt=provenance.attempt,
            parser=reading.parser,
            ocr_engine=reading.ocr_engine,
            languages=self._languages,
            config_hash=self._config_hash,
            open_ms=self.open_ms if answer.index == 0 else 0.0,
            text_ms=reading.text_ms,
            render_ms=reading.render_ms,
            prepare_ms=reading.prepare_ms,
            ocr_ms=reading.ocr_ms,
            total_ms=answer.total_ms,
            cpu_ms=answer.cpu_ms,
            read_at=datetime.now(UTC),
        )

    def document_row(self, error: PdfOpsError | None, wall_ms: float) -> DocumentRow:
        """What became of the document; ``error`` is the one that kept it from being opened."""
        ok = sum(self._methods.values())
        if error is not None:
            skipped = error.kind.counted_as is CountedAs.SKIPPED
            status = DocumentStatus.SKIPPED if skipped else DocumentStatus.FAILED
        elif self._errors:
            status = DocumentStatus.PARTIAL if ok else DocumentStatus.FAILED
        else:
            status = DocumentStatus.DONE
        shown = error or self._first_error
        by_ocr = self._methods[Method.OCR]
        return DocumentRow(
            source_uri=self.source.uri,
            doc_id=self.source.doc_id,
            source_etag=self.source.etag,
            source_version_id=self.source.version_id,
            source_size=self.source.size,
            media_type=self.source.media_type,
            status=status,
            page_count=self.page_count,
            pages_written=ok + self._errors,
            pages_text_layer=self._methods[Method.TEXT_LAYER],
            pages_ocr=by_ocr,
            pages_empty=self._methods[Method.EMPTY],
            pages_none=self._methods[Method.NONE],
            pages_error=self._errors,
            char_count=self._characters,
            ocr_confidence=self._confidences / by_ocr if by_ocr else None,
            error_class=shown.kind.error_class.value if shown else None,
            error_code=shown.kind.code if shown else None,
            error_phase=shown.phase.value if shown else None,
            error_message=str(shown) if shown else None,
            run_id=self.provenance.run_id,
            worker_id=self.provenance.worker_id,
            attempt=self.provenance.attempt,
            languages=self._languages,
            config_hash=self._config_hash,
            wall_ms=wall_ms,
            cpu_ms=self._cpu_ms,
            read_at=datetime.now(UTC),
        )
