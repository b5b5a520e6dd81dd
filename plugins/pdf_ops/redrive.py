"""Which documents go round again: dead letters by run, class and prefix, or results that are not good enough.

Only selects: nothing is sent or deleted here. Letters are looked at and put back.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.state import state_key
from pdf_ops.dead_letters import LetterReader
from pdf_ops.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pdf_ops.contract.layout import Layout
    from pdf_ops.dead_letters import Letter
    from pdf_ops.settings import Settings

MAX_LETTERS = 110_000
"""SQS has at most 120,000 messages of a queue in flight."""
MAX_SECONDS = 900.0
LOW_CONFIDENCE = "low confidence"
_COLUMNS = ("source_uri", "run_id", "ocr_confidence", "read_at", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What is asked for; all that is given must hold, and nothing at all means every dead letter.

    Attributes:
        run_id: Only documents that failed, or were read, in this run.
        error_class: Only those that failed with it.
        prefix: Only keys that begin with it.
        confidence_below: Not dead letters but documents that were read with less confidence.
    """

    run_id: str | None = None
    error_class: str | None = None
    prefix: str | None = None
    confidence_below: float | None = None

    def is_letter_wanted(self, letter: Letter) -> bool:
        """Whether a letter's run and class are those that are asked for."""
        if self.run_id and letter.run_id != self.run_id:
            return False
        return not self.error_class or letter.error_class == self.error_class

    def is_key_wanted(self, key: str) -> bool:
        """Whether a key is below the prefix."""
        return key.startswith(self.prefix or "")


@dataclass(slots=True)
class Selection:
    """What was found.

    Attributes:
        sources: The documents, each once.
        by_error: How many per class and code.
        is_complete: Whether everything was looked at, and there are no more than were asked for.
        unreadable: Letters that name no document; they stay where they are.
    """

    sources: dict[S3Uri, None] = field(default_factory=dict)
    by_error: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True
    unreadable: int = 0


def documents_of(letter: Letter, default_bucket: str) -> Iterator[S3Uri]:
    """The documents that a letter is about: of an event with several, the one that failed."""
    for document in letter.documents:
        source = document.source_uri(default_bucket)
        is_named = letter.s3_key is not None and len(letter.documents) > 1
        if not is_named or state_key(source.bucket, source.key, default_bucket) == letter.s3_key:
            yield source


def select(
    criteria: Criteria, settings: Settings, *, sqs: Any, s3: Any, limit: int, max_s: float = MAX_SECONDS
) -> Selection:
    """Look for what is asked for, where it has to be looked for: what a dry run counts.

    Args:
        criteria: What is asked for.
        settings: Where queue, buckets and dataset are.
        sqs: A client.
        s3: A client.
        limit: Stop at so many documents.
        max_s: Stop looking through letters after so many seconds.
    """
    if criteria.confidence_below is not None:
        return select_results(ObjectStore(client=s3), settings.layout, criteria, limit=limit)
    return select_letters(
        sqs,
        settings.dlq_sqs_queue_url,
        criteria,
        default_bucket=settings.input_s3_bucket,
        limit=limit,
        max_s=max_s,
    )


def new_run_id(now: datetime) -> str:
    """The id of a run of ``pdf_redrive`` that somebody asks for from outside Airflow."""
    return f"redrive__{now:%Y-%m-%dT%H:%M:%S.%fZ}_{uuid.uuid4().hex[:6]}"


def select_letters(
    client: Any,
    queue_url: str,
    criteria: Criteria,
    *,
    default_bucket: str,
    limit: int,
    max_s: float = MAX_SECONDS,
) -> Selection:
    """Look through the dead letters.

    Args:
        client: SQS.
        queue_url: The dead-letter queue.
        criteria: What is asked for.
        default_bucket: The bucket of messages that name none.
        limit: Stop at so many documents.
        max_s: Stop after so many seconds.
    """
    found = Selection()
    with LetterReader(client, queue_url, max_messages=MAX_LETTERS, max_s=max_s) as reader:
        for letter in (one for batch in reader.batches() for one in batch):
            if not criteria.is_letter_wanted(letter):
                continue
            found.unreadable += not letter.documents
            for source in documents_of(letter, default_bucket):
                if source in found.sources or not criteria.is_key_wanted(source.key):
                    continue
                if len(found.sources) == limit:
                    found.is_complete = False
                    return found
                found.sources[source] = None
                found.by_error[letter.label] += 1
    found.is_complete = reader.is_complete
    return found


def select_results(store: ObjectStore, layout: Layout, criteria: Criteria, *, limit: int) -> Selection:
    """Look through what was read: the run's manifest, or the documents dataset without a run.

    A document counts as it was read last.
    """
    import io

    import pyarrow.parquet as pq

    prefix = layout.run_manifest(criteria.run_id) if criteria.run_id else layout.documents_dataset()
    newest: dict[str, tuple[Any, bool]] = {}
    for item in store.list(prefix):
        data = store.read(item.uri)
        if data is None or not item.uri.key.endswith(".parquet"):
            continue
        for row in pq.read_table(io.BytesIO(data), columns=list(_COLUMNS)).to_pylist():
            uri, confidence = row["source_uri"], row["ocr_confidence"]
            if row["status"] == "skipped" or not uri.startswith("s3://"):
                continue
            is_low = confidence is not None and confidence < (criteria.confidence_below or 0.0)
            known = newest.get(uri)
            # Only what is or was too low is kept, so that memory does not grow with the dataset.
            if (known is not None or is_low) and (known is None or row["read_at"] >= known[0]):
                newest[uri] = (row["read_at"], is_low)
    found = Selection()
    for uri, (_, is_low) in newest.items():
        source = S3Uri.parse(uri)
        if not is_low or not criteria.is_key_wanted(source.key):
            continue
        if len(found.sources) == limit:
            found.is_complete = False
            break
        found.sources[source] = None
        found.by_error[LOW_CONFIDENCE] += 1
    return found
