"""Everything that can end a task of the control plane, one class each.

Each survives pickling, says what to do, and is final where trying again cannot help. Not for what is
wrong with a document: that is `pdf_ops.contract.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAMED_KEYS = 10


class SettingsError(AirflowFailException):
    """Settings that cannot be used; the message names each of them, one a line."""


class WindowError(AirflowFailException):
    """The window's start and end do not make a window."""


class ListingConflictError(AirflowException):
    """Another try of the same task keeps writing the listing at the same time."""


class EnqueueError(AirflowException):
    """Messages that the queue did not take.

    Attributes:
        keys: The first of the documents' keys.
        count: How many there are.
    """

    def __init__(self, reason: str, keys: Sequence[str], count: int) -> None:
        super().__init__(reason, list(keys)[:MAX_NAMED_KEYS], count)
        self.reason, self.keys, self.count = reason, list(keys)[:MAX_NAMED_KEYS], count

    def __str__(self) -> str:
        """Name the documents."""
        more = f" and {self.count - len(self.keys)} more" if self.count > len(self.keys) else ""
        return (
            f"the queue did not take {self.count} message(s) ({self.reason}): {', '.join(self.keys)}{more}. "
            "Clear this task to send its shard again; a document that is sent twice is read once."
        )


class FleetError(AirflowException):
    """A worker's container did not do its work."""


class FleetCapacityError(FleetError):
    """ECS has no room for another worker."""


class TaskFailedToStartError(FleetError):
    """The container never ran: the image, the network or a role is wrong."""


class SpotReclaimedError(FleetError):
    """The machine below the worker was taken back, more often than replacements are allowed."""


class WorkerCrashedError(FleetError):
    """The worker ended with an error.

    Attributes:
        exit_code: What its process returned; None when ECS does not know.
    """

    def __init__(self, task: str, exit_code: int | None, reason: str) -> None:
        super().__init__(task, exit_code, reason)
        self.task, self.exit_code, self.reason = task, exit_code, reason

    def __str__(self) -> str:
        """Say how it ended, and what that usually means."""
        meaning = {
            2: "its settings are wrong",
            137: "it was killed, most often for want of memory",
            139: "it crashed in native code",
        }.get(self.exit_code or 0, "its log says why")
        code = "no exit code" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"the worker {self.task} ended with {code}: {meaning} ({self.reason or 'no reason given'})"


class RunNotFoundError(AirflowFailException):
    """The runs table has no record of the run, so nothing says how many documents to wait for."""


class RunStalledError(AirflowFailException):
    """No document of the run was finished for too long."""


class FailureThresholdError(AirflowFailException):
    """More documents failed than the run allows."""


class PermanentAwsError(AirflowFailException):
    """AWS refuses a call, and would refuse it again."""
