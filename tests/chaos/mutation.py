"""The worker with one line broken on purpose: a copy of its sources, which its processes take instead."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """What is broken: a text that stands in a file once becomes another."""

    file: str
    old: str
    new: str

    def apply(self, folder: Path) -> tuple[Path, ...]:
        """Write the broken sources; gives the folder that goes before the repository's."""
        for package in ("include/ocr_worker", "plugins/pdf_ops"):
            target = folder / Path(package).name
            shutil.copytree(REPOSITORY / package, target, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / self.file
        source = path.read_text(encoding="utf-8")
        assert source.count(self.old) == 1, f"{self.file} does not hold once: {self.old}"
        path.write_text(source.replace(self.old, self.new), encoding="utf-8")
        return (folder,)


WITHOUT_FENCE = Mutation(
    file="ocr_worker/ledger.py",
    old='"ConditionExpression": "lease_token = :token AND #status = :processing"',
    new='"ConditionExpression": "lease_token = :token OR #status <> :token OR #status = :processing"',
)
DELETE_BEFORE_MANIFEST = Mutation(
    file="ocr_worker/manifest.py",
    old="            messages, rows = list(self._messages), self._rows\n",
    new="            messages, rows = list(self._messages), self._rows\n"
    "            await self._queue.delete(messages)\n"
    "            if messages:\n"
    '                await self._faults.at(Step.ACK, "")\n',
)
WITHOUT_LEASE_CHECK = Mutation(
    file="ocr_worker/ledger.py",
    old="OR lease_until < :now OR",
    new="OR lease_until < :now OR lease_until >= :now OR",
)
COUNTER_APART = Mutation(
    file="ocr_worker/ledger.py",
    old="[self._put_outcome(outcome), state, self._add(lease.run_id, counters)])",
    new="[self._put_outcome(outcome), state])\n            await self._count(lease.run_id, counters)",
)
RETRIES_REVERSED = Mutation(
    file="ocr_worker/document_work.py",
    old="can_help = kind.retryable or kind is ErrorKind.SOURCE_NOT_FOUND",
    new="can_help = not kind.retryable",
)
