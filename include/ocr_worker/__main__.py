"""``python -m ocr_worker``: the same as the console script."""

from ocr_worker.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
