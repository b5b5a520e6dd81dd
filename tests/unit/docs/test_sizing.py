"""docs/sizing.md is computed from the figures in the README."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SIZING = (REPOSITORY / "docs" / "sizing.md").read_text(encoding="utf-8")


def figure(pattern: str) -> float:
    found = re.search(pattern, README)
    assert found, pattern
    return float(found.group(1).replace(",", ""))


def test_the_sizing_table_follows_from_the_benchmark() -> None:
    ocr = figure(r"\*\*Scanned pages\*\* \((\d+) pages") / figure(r"\| pdf_ops \| ([\d.]+) \|")
    text = figure(r"97 real documents, (\d+) pages") / figure(r"\| pdf_ops --ocr off \| ([\d.]+) \|")
    documents = 1000 / figure(r"([\d.]+) ms of worker CPU a document")
    gain = figure(r"in 43\.2 s: ([\d.]+) times the pages a second") / 2

    rows = re.findall(
        r"^\| (\d+) \| \d+ \| (\d+) GB \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \|$", SIZING, re.MULTILINE
    )

    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16]
    for vcpus, memory_gb, *rates in rows:
        count = int(vcpus) * (1 if vcpus == "1" else gain)
        assert rates == [f"{ocr * count:.1f}", f"{documents * count:,.0f}", f"{text * count:,.0f}"], vcpus
        assert int(memory_gb) == 2 * int(vcpus), "the least that Fargate offers"
