"""The task that brings the search index up to date with the dataset. Not for how that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from pdf_ops.operators.run_outputs import RunOutputsOperator
from pdf_ops.partitions import return_freed_memory
from pdf_ops.search.found import NoIndexError
from pdf_ops.search.publishing import publication_facts, update_published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pdf_ops.search.building import Progress


class SearchIndexError(AirflowFailException):
    """The index cannot be brought up to date; the message says what to do."""


class SearchIndexOperator(RunOutputsOperator):
    """Add the rows that are new in the dataset to the published search index.

    Looks at the whole dataset, so what a failed run of this task has missed, the next one adds.

    The arguments of :class:`~pdf_ops.operators.run_outputs.RunOutputsOperator`, and:

    :param is_rebuild: Begin with an empty index.
    """

    template_fields: Sequence[str] = RunOutputsOperator.template_fields
    ui_color = "#d5e8d4"

    def __init__(self, *, is_rebuild: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_rebuild = is_rebuild

    def execute(self, context: Context) -> dict[str, Any]:
        """Update and publish it.

        Raises:
            SearchIndexError: If that cannot be done here.
        """
        return_freed_memory()
        try:
            built, publication = update_published(
                self.store, self.layout, is_rebuild=self.is_rebuild, on_progress=self._tell
            )
        except NoIndexError as error:
            raise SearchIndexError(str(error)) from error
        self.log.info(
            "The search index has %d pages: %d added, %d documents replaced, %.1f s",
            built.rows,
            built.rows_added,
            built.documents_replaced,
            built.elapsed_s,
        )
        return {
            "rows_added": built.rows_added,
            "documents_replaced": built.documents_replaced,
            **(publication_facts(publication) if publication else {"rows": built.rows}),
        }

    def _tell(self, progress: Progress) -> None:
        self.log.info(
            "%d of %d files, %d pages, %.0f pages/s",
            progress.files_done,
            progress.files,
            progress.rows,
            progress.rows / progress.elapsed_s if progress.elapsed_s else 0.0,
        )
