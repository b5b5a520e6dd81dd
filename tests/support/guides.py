"""The commands of a page of docs/: those that tests run, and those that are marked as not provable here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
MARK = re.compile(r"\s+# not provable here$")


@dataclass(frozen=True)
class Command:
    """One line that a reader copies into a shell."""

    text: str
    section: str
    is_provable: bool


def commands_of(page: str) -> list[Command]:
    """The commands of a page, in order."""
    found, section, is_console = [], "", False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_console = line == "```console"
        elif line.startswith("## "):
            section = line.removeprefix("## ")
        elif is_console:
            assert line.startswith("$ "), f"{page}: a command is one line that starts with a prompt: {line}"
            text = line.removeprefix("$ ")
            found.append(Command(MARK.sub("", text), section, MARK.search(text) is None))
    return found
