"""``python -m samples FOLDER``: the sample documents as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from samples.sample_set import sample_set


def main() -> int:
    """Write them."""
    parser = argparse.ArgumentParser(prog="python -m samples", description="Write the sample documents.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for sample in sample_set():
        path = folder / sample.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sample.body)
        print(f"{path}: {sample.what}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
