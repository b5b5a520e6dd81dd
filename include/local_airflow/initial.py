"""What the service ``init`` of docker-compose.yaml does before Airflow starts: database, login, samples.

Not for ``make demo`` and ``make up``, which need no login of a person's own and no PostgreSQL.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from local_airflow.demo import Place, load_samples
from local_airflow.up import USER

_BUCKET_VARIABLE = "AIRFLOW__PDF_OPS__INPUT_S3_BUCKET"


def main() -> int:
    """Do all of it; twice does no harm."""
    subprocess.run(["airflow", "db", "migrate"], check=True)  # noqa: S607 -- the image's own
    write_password(
        Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]),
        os.environ["AIRFLOW_ADMIN_PASSWORD"],
    )
    new, total = load_samples(
        Place(
            {
                **os.environ,
                "AWS_REGION": os.environ["AWS_DEFAULT_REGION"],
                "INPUT_S3_BUCKET": os.environ[_BUCKET_VARIABLE],
            }
        )
    )
    print(f"the database is ready; {total} sample documents, {new} of them new")
    return 0


def write_password(file: Path, password: str) -> None:
    """Put the login into the file that Airflow's simple auth manager reads, for its owner only."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps({USER: password}), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
