"""Every setting of the worker, typed, in one place; ``ocr_worker.options`` finds their values.

Not for what a run is told by message.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ocr_worker.isolation.sandbox import Sandbox, SandboxMode
from ocr_worker.limits import Limits
from ocr_worker.options import Option
from ocr_worker.pages import PoolConfig
from ocr_worker.protocol import ProcessConfig
from pdf_ops.contract.fingerprint import MAX_DPI, MIN_DPI, OcrMode, ReadingConfig, parse_languages
from pdf_ops.contract.layout import Layout, clean_prefix, parse_bucket


class OutputFormat(StrEnum):
    """What page and document rows are written as."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class RecognizerName(StrEnum):
    """The OCR engines."""

    AUTO = "auto"
    TESSEROCR = "tesserocr"
    PYTESSERACT = "pytesseract"


class OpenSearchAuth(StrEnum):
    """How OpenSearch is told who asks."""

    AUTO = "auto"
    NONE = "none"
    BASIC = "basic"
    SIGV4 = "sigv4"


def _url(value: str) -> None:
    if not re.fullmatch(r"https?://[^\s/@]+(:[0-9]+)?/?", value):
        raise ValueError("it is no URL such as https://search.example.com, without a user in it")


def _index_name(value: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", value):
        raise ValueError("an index's name has lower-case letters, digits, _ and -")


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How the worker reads."""

    ocr: Annotated[
        OcrMode,
        Option("OCR_MODE", "When to use OCR: where the text layer is not good enough, always, or never."),
    ] = OcrMode.AUTO
    languages: Annotated[
        str,
        Option(
            "OCR_LANGUAGES",
            "OCR languages, the leading one first, such as eng+deu.",
            check=parse_languages,
        ),
    ] = "eng"
    dpi: Annotated[
        int,
        Option("OCR_DPI", "Resolution that pages are drawn at for OCR.", minimum=MIN_DPI, maximum=MAX_DPI),
    ] = 200
    max_page_pixels: Annotated[
        int,
        Option(
            "OCR_MAX_PAGE_PIXELS",
            "Largest picture of a page; a page that is larger at --dpi is drawn coarser.",
            minimum=100_000,
            maximum=1_000_000_000,
        ),
    ] = 40_000_000
    trust_ocr_layer: Annotated[
        bool,
        Option("OCR_TRUST_OCR_LAYER", "Take the invisible text that an earlier OCR left over a scan."),
    ] = False
    recognizer: Annotated[
        RecognizerName, Option("OCR_RECOGNIZER", "OCR engine; auto takes the first that is installed.")
    ] = RecognizerName.AUTO
    password: Annotated[
        str | None,
        Option(
            "OCR_PASSWORD", "Password for encrypted documents that you own; better given in the environment."
        ),
    ] = field(default=None, repr=False)
    processes: Annotated[
        int,
        Option(
            "MAX_WORKERS",
            "Page processes that run at once; one per core unless given.",
            minimum=1,
            maximum=256,
        ),
    ] = field(default_factory=_usable_cores)
    max_docs_per_process: Annotated[
        int,
        Option("OCR_MAX_DOCS_PER_PROCESS", "Documents after which a page process is replaced.", minimum=1),
    ] = 200
    page_timeout_s: Annotated[
        float,
        Option(
            "OCR_PAGE_TIMEOUT_S",
            "Seconds that one page may take, by the clock and of CPU.",
            minimum=0,
            maximum=86_400,
            is_exclusive=True,
        ),
    ] = 60.0
    document_timeout_s: Annotated[
        float,
        Option(
            "OCR_DOCUMENT_TIMEOUT_S",
            "Seconds that one document may take.",
            minimum=0,
            maximum=604_800,
            is_exclusive=True,
        ),
    ] = 3_600.0
    memory_limit_mb: Annotated[
        int,
        Option(
            "OCR_MEMORY_LIMIT_MB",
            "Address space of one page process, in MiB.",
            minimum=256,
            maximum=1_048_576,
        ),
    ] = 1_536
    max_pages: Annotated[
        int,
        Option(
            "OCR_MAX_PAGES",
            "Documents with more pages are skipped (POLICY/too_many_pages).",
            minimum=1,
            maximum=2**31 - 1,
        ),
    ] = 20_000
    max_megabytes: Annotated[
        int,
        Option(
            "OCR_MAX_MEGABYTES",
            "Larger files are skipped (POLICY/too_large).",
            minimum=1,
            maximum=5_000_000,
        ),
    ] = 4_096
    sandbox: Annotated[
        SandboxMode,
        Option(
            "OCR_SANDBOX",
            "Keep page processes from the network, files and other processes: as far as the kernel can, "
            "or not at all if it cannot do all of it, or never.",
        ),
    ] = SandboxMode.AUTO
    scratch_dir: Annotated[
        Path, Option("OCR_SCRATCH_DIR", "Folder for temporary files; a tmpfs is fastest.")
    ] = Path(tempfile.gettempdir())

    @property
    def reading(self) -> ReadingConfig:
        """What decides the rows."""
        return ReadingConfig(
            ocr=self.ocr,
            languages=parse_languages(self.languages),
            dpi=self.dpi,
            max_page_pixels=self.max_page_pixels,
            trust_ocr_layer=self.trust_ocr_layer,
        )

    @property
    def limits(self) -> Limits:
        """What one page process may use."""
        return Limits(memory_bytes=self.memory_limit_mb * 2**20, page_timeout_s=self.page_timeout_s)

    def pool(
        self, scratch: Path, profile_folder: Path | None = None, readable: tuple[Path, ...] = ()
    ) -> PoolConfig:
        """How the page processes run, and which folders besides the scratch hold documents."""
        return PoolConfig(
            process=ProcessConfig(
                reading=self.reading,
                limits=self.limits,
                recognizer=self.recognizer.value,
                max_pages=self.max_pages,
                sandbox=Sandbox(
                    mode=self.sandbox,
                    readable=(scratch, *readable),
                    writable=(profile_folder,) if profile_folder is not None else (),
                ),
                profile_folder=profile_folder,
            ),
            processes=self.processes,
            document_timeout_s=self.document_timeout_s,
            max_docs_per_process=self.max_docs_per_process,
            scratch=scratch,
        )


def _bucket(value: str) -> None:
    parse_bucket(value)


@dataclass(frozen=True, kw_only=True)
class MirrorSettings:
    """Which queue to take messages from, and where their documents are."""

    input_bucket: Annotated[
        str, Option("INPUT_S3_BUCKET", "Bucket of messages that name none.", check=_bucket)
    ]
    queue_url: Annotated[str, Option("SQS_QUEUE_URL", "Queue to take messages from.")]
    dlq_url: Annotated[
        str | None, Option("DLQ_SQS_QUEUE_URL", "Queue for messages of documents that failed for good.")
    ] = None
    region: Annotated[str | None, Option("AWS_REGION", "AWS region.")] = None
    visibility_s: Annotated[
        int,
        Option(
            "VISIBILITY_S",
            "Seconds that a message stays hidden without a heartbeat.",
            minimum=3,
            maximum=43_200,
        ),
    ] = 300
    idle_s: Annotated[
        float,
        Option(
            "IDLE_S",
            "Seconds without a message after which the worker ends, unless others have messages in hand "
            "that may come back.",
            minimum=0,
            maximum=86_400,
        ),
    ] = 15.0


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(MirrorSettings, WorkerSettings):
    """How the worker runs as a service: which queue, tables and buckets, and how it behaves there."""

    output_bucket: Annotated[str, Option("OUTPUT_S3_BUCKET", "Bucket for page rows.", check=_bucket)]
    output_prefix: Annotated[str, Option("OUTPUT_S3_PREFIX", "Prefix for page rows.", check=clean_prefix)] = (
        ""
    )
    manifest_bucket: Annotated[
        str, Option("MANIFEST_S3_BUCKET", "Bucket for listings, manifests and reports.", check=_bucket)
    ]
    manifest_prefix: Annotated[
        str, Option("MANIFEST_S3_KEY", "Prefix for listings, manifests and reports.", check=clean_prefix)
    ] = ""
    state_table: Annotated[str, Option("DYNAMO_TABLE_NAME", "Table with one item per document.")]
    runs_table: Annotated[str, Option("DYNAMO_RUNS_TABLE_NAME", "Table with the counters of each run.")]
    secret_name: Annotated[
        str | None,
        Option("SECRET_NAME", "Secret in Secrets Manager: a JSON object of settings, by variable."),
    ] = None
    log_group: Annotated[
        str | None, Option("LOG_GROUP_NAME", "CloudWatch log group to send the log to, besides stdout.")
    ] = None
    worker_id: Annotated[
        str | None, Option("WORKER_ID", "Name of this worker in logs and tables; made up unless given.")
    ] = None
    max_retries: Annotated[
        int,
        Option(
            "MAX_RETRIES", "Tries that are charged to a document before it fails.", minimum=1, maximum=100
        ),
    ] = 3
    backoff_base_s: Annotated[
        float,
        Option(
            "BACKOFF_BASE_S", "Seconds before the second try; doubled each time.", minimum=0, maximum=3_600
        ),
    ] = 15.0
    backoff_cap_s: Annotated[
        float,
        Option("BACKOFF_CAP_S", "Most seconds between two tries.", minimum=0, maximum=43_200),
    ] = 900.0
    max_unfinished: Annotated[
        int,
        Option(
            "MAX_UNFINISHED",
            "Workers that may die with a document before it is closed as CRASH/poison; "
            "below the queue's own limit of receives.",
            minimum=1,
            maximum=100,
        ),
    ] = 5
    lease_s: Annotated[
        float,
        Option(
            "LEASE_S",
            "Seconds after which another worker may take a document over.",
            minimum=3,
            maximum=3_600,
        ),
    ] = 120.0
    stop_timeout_s: Annotated[
        float,
        Option(
            "STOP_TIMEOUT_S",
            "Seconds to finish documents after SIGTERM before giving them back; 30 s below stopTimeout.",
            minimum=1,
            maximum=600,
        ),
    ] = 80.0
    prefetch_documents: Annotated[
        int,
        Option("PREFETCH_DOCUMENTS", "Documents in hand besides those being read.", minimum=0, maximum=1_000),
    ] = 20
    prefetch_mb: Annotated[
        int,
        Option("PREFETCH_MB", "Size of the documents in hand together, in MB.", minimum=1, maximum=1_000_000),
    ] = 512
    opensearch_url: Annotated[
        str | None,
        Option("OPENSEARCH_URL", "OpenSearch, to index pages in after their commit.", check=_url),
    ] = None
    opensearch_index: Annotated[
        str, Option("OPENSEARCH_INDEX", "What its indexes' names begin with.", check=_index_name)
    ] = "pdf-ops"
    opensearch_auth: Annotated[
        OpenSearchAuth,
        Option(
            "OPENSEARCH_AUTH",
            "How to log in there; auto: as the user if one is given, else signed for a domain of AWS's.",
        ),
    ] = OpenSearchAuth.AUTO
    opensearch_username: Annotated[str | None, Option("OPENSEARCH_USERNAME", "Who logs in there.")] = None
    opensearch_password: Annotated[
        str | None, Option("OPENSEARCH_PASSWORD", "With what; better given in the secret.")
    ] = field(default=None, repr=False)
    opensearch_timeout_s: Annotated[
        float,
        Option(
            "OPENSEARCH_TIMEOUT_S", "Seconds that a request there may stand still.", minimum=1, maximum=300
        ),
    ] = 15.0
    opensearch_queue_documents: Annotated[
        int,
        Option(
            "OPENSEARCH_QUEUE_DOCUMENTS",
            "Documents that wait to be indexed; more are left to `pdf-ops reindex`.",
            minimum=1,
            maximum=100_000,
        ),
    ] = 500
    opensearch_queue_mb: Annotated[
        int,
        Option(
            "OPENSEARCH_QUEUE_MB", "Size of their page files together, in MB.", minimum=1, maximum=100_000
        ),
    ] = 256
    opensearch_flush_s: Annotated[
        float,
        Option(
            "OPENSEARCH_FLUSH_S",
            "Seconds that the end of the worker waits for documents to be indexed.",
            minimum=0,
            maximum=3_600,
        ),
    ] = 30.0

    @property
    def layout(self) -> Layout:
        """Where everything lies in S3."""
        return Layout(
            output_bucket=self.output_bucket,
            output_prefix=self.output_prefix,
            manifest_bucket=self.manifest_bucket,
            manifest_prefix=self.manifest_prefix,
        )
