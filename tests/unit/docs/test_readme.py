"""The README's guarantees are tests, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.guarantees import promised_in

REPOSITORY = Path(__file__).resolve().parents[3]


def test_every_guarantee_in_the_readme_has_a_test_of_that_name() -> None:
    """That they also run is for ``tests.support.guarantees`` to say, at the end of a whole run."""
    promised = promised_in(REPOSITORY / "README.md")
    sources = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    existing = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}

    assert promised
    assert promised <= existing


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
