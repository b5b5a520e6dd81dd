"""``python -m local_airflow``: see ``cli``."""

from local_airflow.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
