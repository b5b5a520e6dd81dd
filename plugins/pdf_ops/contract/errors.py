"""Every way in which a document can fail, and what follows from it.

One enum, one policy each: the worker, the DLQ triage, the API and the UI all read this table.
Not for catching: turning an outside tool's error into a kind happens next to that tool.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DETAIL_CHARS = 500
MAX_LAST_ERROR_BYTES = 1024

# Credentials before a host; whatever follows the question mark, as in a presigned URL.
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@\"']+@")
_QUERY_IN_URL = re.compile(r"(\bhttps?://[^\s?\"'<>]*)\?[^\s\"'<>]*", re.IGNORECASE)


class ErrorClass(StrEnum):
    """What kind of thing went wrong; the part of an error that people filter and redrive by."""

    SOURCE = "SOURCE"
    POLICY = "POLICY"
    ENCRYPTED = "ENCRYPTED"
    CORRUPT = "CORRUPT"
    BOMB = "BOMB"
    TIMEOUT = "TIMEOUT"
    OOM = "OOM"
    CRASH = "CRASH"
    ENGINE = "ENGINE"
    TARGET = "TARGET"
    LOST = "LOST"


class Phase(StrEnum):
    """The step of a document's way in which an error happened."""

    FETCH = "fetch"
    PROBE = "probe"
    EXTRACT = "extract"
    RENDER = "render"
    OCR = "ocr"
    WRITE = "write"
    COMMIT = "commit"
    INDEX = "index"


class Scope(StrEnum):
    """How far an error reaches: one page, the document, or every document of the fleet."""

    PAGE = "page"
    DOCUMENT = "document"
    FLEET = "fleet"


class CountedAs(StrEnum):
    """The outcome of a document whose last word is this error.

    ``PARTIAL`` supposes that at least one page was read; without one the document is ``FAILED``.
    ``UNCHANGED`` errors come after the commit and leave the outcome as it was. ``RETRIED`` errors
    are never a last word.
    """

    FAILED = "failed"
    SKIPPED = "skipped"
    PARTIAL = "partial"
    UNCHANGED = "unchanged"
    RETRIED = "retried"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """What follows from one kind of error.

    Attributes:
        error_class: The class, e.g. ``CORRUPT``.
        code: The code within the class, e.g. ``truncated``.
        phase: Where it usually happens; a raised error may name another phase.
        scope: How far it reaches.
        retryable: Whether another try can help.
        counts_as_attempt: Whether the try that ended so is charged to the document.
        counted_as: The outcome of a document that ends with it.
        meaning: One sentence, what happened.
        what_to_do: One sentence, with the command or setting that fixes it where there is one.
    """

    error_class: ErrorClass
    code: str
    phase: Phase
    scope: Scope
    retryable: bool
    counts_as_attempt: bool
    counted_as: CountedAs
    meaning: str
    what_to_do: str


def _policy(
    error_class: ErrorClass,
    code: str,
    phase: Phase,
    meaning: str,
    what_to_do: str,
    *,
    scope: Scope = Scope.DOCUMENT,
    retryable: bool = False,
    counts_as_attempt: bool = True,
    counted_as: CountedAs | None = None,
) -> ErrorPolicy:
    """Fill in what most kinds share, so that the table below shows what is special."""
    if counted_as is None:
        counted_as = CountedAs.PARTIAL if scope is Scope.PAGE else CountedAs.FAILED
    return ErrorPolicy(
        error_class=error_class,
        code=code,
        phase=phase,
        scope=scope,
        retryable=retryable,
        counts_as_attempt=counts_as_attempt,
        counted_as=counted_as,
        meaning=meaning,
        what_to_do=what_to_do,
    )


class ErrorKind(Enum):
    """One member per (class, code); the value is its policy."""

    SOURCE_NOT_FOUND = _policy(
        ErrorClass.SOURCE,
        "not_found",
        Phase.FETCH,
        "The object is not there, also after waiting for it to appear.",
        "Check the key with `aws s3api head-object --bucket BUCKET --key KEY`; list again if it was deleted.",
    )
    SOURCE_ACCESS_DENIED = _policy(
        ErrorClass.SOURCE,
        "access_denied",
        Phase.FETCH,
        "The worker may not read the object.",
        "Give the worker's task role s3:GetObject (and kms:Decrypt for the object's key), then redrive.",
    )
    SOURCE_CHANGED_DURING_READ = _policy(
        ErrorClass.SOURCE,
        "changed_during_read",
        Phase.FETCH,
        "The object was replaced while it was being read.",
        "Nothing if it is rare; otherwise start the run after the upload has finished.",
        retryable=True,
    )
    SOURCE_THROTTLED = _policy(
        ErrorClass.SOURCE,
        "throttled",
        Phase.FETCH,
        "S3 asked to slow down.",
        "Redrive; if it comes back, run fewer workers or spread the documents over more prefixes.",
        retryable=True,
    )
    SOURCE_UNAVAILABLE = _policy(
        ErrorClass.SOURCE,
        "unavailable",
        Phase.FETCH,
        "S3 could not be reached or answered with a server error.",
        "Redrive; if it comes back, check the worker's route to S3 (endpoint, NAT, security group).",
        retryable=True,
    )
    SOURCE_INVALID_MESSAGE = _policy(
        ErrorClass.SOURCE,
        "invalid_message",
        Phase.FETCH,
        "The queue message names no document.",
        'Send a message such as {"s3_key": "folder/file.pdf"}, and drop this one from the DLQ.',
    )
    SOURCE_UNREADABLE = _policy(
        ErrorClass.SOURCE,
        "unreadable",
        Phase.FETCH,
        "The local file could not be read.",
        "Check that the path is a regular file that this user may read (`ls -l FILE`).",
    )
    POLICY_TOO_LARGE = _policy(
        ErrorClass.POLICY,
        "too_large",
        Phase.FETCH,
        "The file is larger than the size limit.",
        "Raise the size limit, or split the file with `qpdf --split-pages=500 in.pdf out-%d.pdf`.",
        counted_as=CountedAs.SKIPPED,
    )
    POLICY_TOO_MANY_PAGES = _policy(
        ErrorClass.POLICY,
        "too_many_pages",
        Phase.PROBE,
        "The document has more pages than the page limit.",
        "Raise the page limit, or split the file with `qpdf --split-pages=500 in.pdf out-%d.pdf`.",
        counted_as=CountedAs.SKIPPED,
    )
    POLICY_UNSUPPORTED_TYPE = _policy(
        ErrorClass.POLICY,
        "unsupported_type",
        Phase.PROBE,
        "The file is neither a PDF nor an image that can be read (PNG, JPEG, TIFF).",
        "Convert it to PDF, or leave it out with the listing's prefix and suffix.",
        counted_as=CountedAs.SKIPPED,
    )
    ENCRYPTED_PASSWORD_REQUIRED = _policy(
        ErrorClass.ENCRYPTED,
        "password_required",
        Phase.PROBE,
        "The document opens only with a password.",
        "Decrypt it with `qpdf --decrypt --password=PASSWORD in.pdf out.pdf` and upload the result.",
    )
    ENCRYPTED_PASSWORD_WRONG = _policy(
        ErrorClass.ENCRYPTED,
        "password_wrong",
        Phase.PROBE,
        "The document did not open with the password that was given.",
        "Find the password with `qpdf --requires-password --password=PASSWORD in.pdf`; upload it decrypted.",
    )
    ENCRYPTED_CERTIFICATE_REQUIRED = _policy(
        ErrorClass.ENCRYPTED,
        "certificate_required",
        Phase.PROBE,
        "The document is encrypted for certain recipients' certificates; no password opens it.",
        "Open it in a viewer that has the recipient's key, save it without protection, and upload that.",
    )
    CORRUPT_EMPTY_FILE = _policy(
        ErrorClass.CORRUPT,
        "empty_file",
        Phase.PROBE,
        "The file has no bytes.",
        "Upload it again; the upload was probably cut off or the key is a folder marker.",
    )
    CORRUPT_NOT_A_PDF = _policy(
        ErrorClass.CORRUPT,
        "not_a_pdf",
        Phase.PROBE,
        "The file is named a PDF but its bytes are something else.",
        "Look at it with `head -c 200 FILE`; an HTML error page saved as .pdf must be fetched again.",
    )
    CORRUPT_TRUNCATED = _policy(
        ErrorClass.CORRUPT,
        "truncated",
        Phase.PROBE,
        "The file ends in the middle.",
        "Compare its size with the original and upload it again.",
    )
    CORRUPT_NO_PAGES = _policy(
        ErrorClass.CORRUPT,
        "no_pages",
        Phase.PROBE,
        "The document opens but has no pages.",
        "Check it with `qpdf --show-npages FILE`; if a viewer shows pages, print it to a new PDF.",
    )
    CORRUPT_UNREADABLE = _policy(
        ErrorClass.CORRUPT,
        "unreadable",
        Phase.PROBE,
        "No parser could open the file.",
        "Try to repair it with `qpdf in.pdf out.pdf` or `mutool clean in.pdf out.pdf` and upload the result.",
    )
    CORRUPT_PAGE_UNREADABLE = _policy(
        ErrorClass.CORRUPT,
        "page_unreadable",
        Phase.EXTRACT,
        "This page could not be read by any parser; the others were.",
        "Look at the page in a viewer; if it shows there, print the document to a new PDF and upload that.",
        scope=Scope.PAGE,
    )
    CORRUPT_IMAGE_UNREADABLE = _policy(
        ErrorClass.CORRUPT,
        "image_unreadable",
        Phase.PROBE,
        "The image file could not be decoded.",
        "Open it in a viewer, save it again as PNG or TIFF, and upload that.",
    )
    BOMB_PIXELS = _policy(
        ErrorClass.BOMB,
        "pixels",
        Phase.RENDER,
        "The page would have more pixels than the limit allows.",
        "If the page is genuine, lower `dpi` or raise `max_page_pixels`, then redrive.",
        scope=Scope.PAGE,
    )
    BOMB_DECOMPRESSION = _policy(
        ErrorClass.BOMB,
        "decompression",
        Phase.EXTRACT,
        "A small stream unpacks to far more bytes than the limit allows.",
        "Do not open it by hand; if the sender is trusted, ask for a version printed to a new PDF.",
        scope=Scope.PAGE,
    )
    BOMB_RECURSION = _policy(
        ErrorClass.BOMB,
        "recursion",
        Phase.PROBE,
        "The document's objects refer to each other without end.",
        "Try to repair it with `qpdf in.pdf out.pdf`; if that fails, ask the sender for another version.",
    )
    BOMB_TEXT = _policy(
        ErrorClass.BOMB,
        "text",
        Phase.EXTRACT,
        "The page holds more text than the limit for one page.",
        "Look at the page; if it is genuine, split the content over several pages.",
        scope=Scope.PAGE,
    )
    TIMEOUT_PAGE = _policy(
        ErrorClass.TIMEOUT,
        "page",
        Phase.OCR,
        "The page took longer than the page's time limit, also on its own.",
        "Raise the page time limit or lower `dpi`, then redrive.",
        scope=Scope.PAGE,
        retryable=True,
    )
    TIMEOUT_DOCUMENT = _policy(
        ErrorClass.TIMEOUT,
        "document",
        Phase.OCR,
        "The document took longer than the document's time limit; the pages read until then are kept.",
        "Raise the document time limit, or split the file with `qpdf --split-pages=500 in.pdf out-%d.pdf`.",
        retryable=True,
        counted_as=CountedAs.PARTIAL,
    )
    TIMEOUT_OPEN = _policy(
        ErrorClass.TIMEOUT,
        "open",
        Phase.PROBE,
        "Opening the document took longer than the time limit.",
        "Try to repair it with `qpdf in.pdf out.pdf` and upload the result.",
        retryable=True,
    )
    OOM_PAGE = _policy(
        ErrorClass.OOM,
        "page",
        Phase.RENDER,
        "The page needed more memory than a page process may have.",
        "Give the page processes more memory or lower `dpi`, then redrive.",
        scope=Scope.PAGE,
        retryable=True,
    )
    OOM_DOCUMENT = _policy(
        ErrorClass.OOM,
        "document",
        Phase.PROBE,
        "Opening the document needed more memory than a page process may have.",
        "Give the page processes more memory, or try to repair the file with `qpdf in.pdf out.pdf`.",
        retryable=True,
    )
    CRASH_PAGE = _policy(
        ErrorClass.CRASH,
        "page",
        Phase.EXTRACT,
        "The page killed the process that read it.",
        "Reproduce it with `ocr-worker extract FILE --out DIR`, then print the page to a new PDF.",
        scope=Scope.PAGE,
        retryable=True,
    )
    CRASH_DOCUMENT = _policy(
        ErrorClass.CRASH,
        "document",
        Phase.PROBE,
        "Opening the document killed the process that read it.",
        "Reproduce it with `ocr-worker extract FILE --out DIR`; try to repair it with `qpdf in.pdf out.pdf`.",
        retryable=True,
    )
    CRASH_POISON = _policy(
        ErrorClass.CRASH,
        "poison",
        Phase.EXTRACT,
        "The message came back again and again from workers that died with it.",
        "Reproduce it with `ocr-worker extract FILE --out DIR` before you redrive it.",
    )
    ENGINE_MISSING_LANGUAGE = _policy(
        ErrorClass.ENGINE,
        "missing_language",
        Phase.OCR,
        "The OCR engine has no data for a language that was asked for.",
        "Add it to the image with `apt-get install tesseract-ocr-LANG`; see `tesseract --list-langs`.",
        scope=Scope.FLEET,
        counts_as_attempt=False,
    )
    ENGINE_MISSING_ENGINE = _policy(
        ErrorClass.ENGINE,
        "missing_engine",
        Phase.OCR,
        "A program or library that reading needs is not installed.",
        "Use the project's worker image, or install the program that the message names.",
        scope=Scope.FLEET,
        counts_as_attempt=False,
    )
    ENGINE_MISCONFIGURED = _policy(
        ErrorClass.ENGINE,
        "misconfigured",
        Phase.OCR,
        "The engine refused its settings, so that every document would fail.",
        "Correct the setting that the message names, then redrive.",
        scope=Scope.FLEET,
        counts_as_attempt=False,
    )
    ENGINE_BAD_ANSWER = _policy(
        ErrorClass.ENGINE,
        "bad_answer",
        Phase.EXTRACT,
        "The page process answered in a shape that it must not have.",
        "Reproduce it with `ocr-worker extract FILE --out DIR`; treat the file as hostile until then.",
        scope=Scope.PAGE,
        retryable=True,
    )
    TARGET_S3_PUT = _policy(
        ErrorClass.TARGET,
        "s3_put",
        Phase.WRITE,
        "The output could not be written to S3.",
        "Give the worker's task role s3:PutObject on the output bucket, check that it exists, then redrive.",
        retryable=True,
    )
    TARGET_DYNAMODB = _policy(
        ErrorClass.TARGET,
        "dynamodb",
        Phase.COMMIT,
        "The document's state could not be written to DynamoDB.",
        "Check the table in `DYNAMO_TABLE_NAME`, its capacity and the role's rights on it, then redrive.",
        retryable=True,
    )
    TARGET_DISK = _policy(
        ErrorClass.TARGET,
        "disk",
        Phase.WRITE,
        "The local disk is full or not writable.",
        "Give the worker more ephemeral storage, or free the work folder (`df -h`); then redrive.",
        retryable=True,
    )
    TARGET_OPENSEARCH = _policy(
        ErrorClass.TARGET,
        "opensearch",
        Phase.INDEX,
        "The pages are in Parquet but could not be indexed in OpenSearch.",
        "Check the domain's health and the worker's rights, then `pdf-ops reindex` writes the dataset again.",
        retryable=True,
        counts_as_attempt=False,
        counted_as=CountedAs.UNCHANGED,
    )
    LOST_WORKER_KILLED = _policy(
        ErrorClass.LOST,
        "worker_killed",
        Phase.EXTRACT,
        "The worker went away while it had the document.",
        "Nothing, another worker takes it; if it keeps happening, read the stopped tasks' reasons in ECS.",
        retryable=True,
        counts_as_attempt=False,
        counted_as=CountedAs.RETRIED,
    )
    LOST_SPOT = _policy(
        ErrorClass.LOST,
        "spot",
        Phase.EXTRACT,
        "Spot took the worker's capacity back.",
        "Nothing, another worker takes it; if it keeps happening, raise the on-demand share of the fleet.",
        retryable=True,
        counts_as_attempt=False,
        counted_as=CountedAs.RETRIED,
    )
    LOST_CANCELLED = _policy(
        ErrorClass.LOST,
        "cancelled",
        Phase.EXTRACT,
        "The worker was told to stop before the document was finished.",
        "Nothing, the message goes back to the queue; start a fleet again to go on.",
        retryable=True,
        counts_as_attempt=False,
        counted_as=CountedAs.RETRIED,
    )

    @property
    def policy(self) -> ErrorPolicy:
        """The whole policy."""
        return self.value

    @property
    def error_class(self) -> ErrorClass:
        """The class, e.g. ``CORRUPT``."""
        return self.value.error_class

    @property
    def code(self) -> str:
        """The code within the class, e.g. ``truncated``."""
        return self.value.code

    @property
    def label(self) -> str:
        """How the kind is written in tables and messages: ``CORRUPT/truncated``."""
        return f"{self.value.error_class.value}/{self.value.code}"

    @property
    def phase(self) -> Phase:
        """Where it usually happens."""
        return self.value.phase

    @property
    def scope(self) -> Scope:
        """How far it reaches."""
        return self.value.scope

    @property
    def retryable(self) -> bool:
        """Whether another try can help."""
        return self.value.retryable

    @property
    def counts_as_attempt(self) -> bool:
        """Whether the try that ended so is charged to the document."""
        return self.value.counts_as_attempt

    @property
    def counted_as(self) -> CountedAs:
        """The outcome of a document that ends with it."""
        return self.value.counted_as

    @property
    def meaning(self) -> str:
        """One sentence, what happened."""
        return self.value.meaning

    @property
    def what_to_do(self) -> str:
        """One sentence, how to fix it."""
        return self.value.what_to_do

    @classmethod
    def parse(cls, label: str) -> ErrorKind:
        """Find a kind by its label, e.g. ``CORRUPT/truncated``.

        Raises:
            ValueError: If there is no such kind; the message lists those there are.
        """
        kind = _KIND_BY_LABEL.get(label)
        if kind is None:
            accepted = ", ".join(sorted(_KIND_BY_LABEL))
            raise ValueError(f"unknown error kind {sanitise(label)!r}; accepted: {accepted}")
        return kind

    @classmethod
    def of(cls, error_class: ErrorClass | str, code: str) -> ErrorKind:
        """Find a kind by its class and code, as rows and tables store them.

        Raises:
            ValueError: If there is no such kind; the message lists those there are.
        """
        return cls.parse(f"{error_class}/{code}")

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[[str], ErrorKind], tuple[str]]:
        """Pickle by label: the default is by value, which breaks when a sentence is reworded."""
        return ErrorKind.parse, (self.label,)


_KIND_BY_LABEL: Mapping[str, ErrorKind] = {kind.label: kind for kind in ErrorKind}


def redact_urls(text: str) -> str:
    """Take out of URLs what gives access: users with passwords, and queries with signatures."""
    if "://" not in text:
        return text
    return _QUERY_IN_URL.sub(r"\1?***", _USER_IN_URL.sub("***@", text))


def sanitise(detail: str, max_chars: int = MAX_DETAIL_CHARS) -> str:
    """Make a detail safe to log and to store: one line, printable, not too long, no secrets in URLs.

    Details quote names and messages from untrusted files, so line breaks (log forging), escape
    sequences, bidirectional overrides and lone surrogates become spaces.
    """
    # Cut before cleaning as well: a hostile detail may be megabytes long.
    printable = "".join(char if char.isprintable() else " " for char in detail[: 4 * max_chars])
    clean = redact_urls(" ".join(printable.split()))
    return clean if len(clean) <= max_chars else clean[: max_chars - 1] + "…"


def cut_utf8(text: str, max_bytes: int) -> str:
    """Cut a text so that it has at most max_bytes in UTF-8, never inside a character."""
    encoded = text.encode("utf-8", errors="replace")
    return encoded[:max_bytes].decode("utf-8", errors="ignore")


class PdfOpsError(Exception):
    """A failure with a kind, that says what happened and what to do about it."""

    def __init__(self, kind: ErrorKind, detail: str = "", *, phase: Phase | None = None) -> None:
        """Describe a failure.

        Args:
            kind: Which failure it is.
            detail: What is special about this one; made safe and cut to 500 characters.
            phase: Where it happened, if not where this kind usually happens.
        """
        self.kind = kind
        self.detail = sanitise(detail)
        self.phase = phase if phase is not None else kind.phase
        super().__init__(kind, self.detail)

    def __str__(self) -> str:
        """Say the kind, what happened, and what to do."""
        happened = self.detail or self.kind.meaning
        if not happened.endswith((".", "!", "?", "…")):
            happened += "."
        return f"{self.kind.label}: {happened} {self.kind.what_to_do}"

    @property
    def last_error(self) -> str:
        """The text for the state table's ``last_error``, at most 1 KB."""
        return cut_utf8(str(self), MAX_LAST_ERROR_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling ``__init__``, whose arguments differ between subclasses."""
        return _restore_error, (type(self), self.args, dict(self.__dict__))


def _restore_error(
    cls: type[PdfOpsError], args: tuple[object, ...], state: Mapping[str, object]
) -> PdfOpsError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
