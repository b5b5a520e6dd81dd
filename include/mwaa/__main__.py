"""``python -m mwaa``: the command line."""

from mwaa.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
