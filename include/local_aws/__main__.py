"""``python -m local_aws``: the command line."""

from local_aws.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
