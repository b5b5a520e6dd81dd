"""``python -m tests.chaos --seed 7 --documents 300``: a storm, its timeline and its verdict."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

BUILD = Path(".build/chaos")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="what happens, and in which order")
    parser.add_argument("--seeds", type=int, default=1, help="so many storms, the seeds counted up")
    parser.add_argument("--documents", type=int, default=300, help="how many documents there are")
    options = parser.parse_args()
    # So that workers and servers are ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    # Before Airflow is imported, which reads it then.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "CRITICAL")
    from tests.chaos.storm import Storm

    from local_aws import LocalAws

    shutil.rmtree(BUILD, ignore_errors=True)
    failed = []
    with LocalAws(BUILD / "aws", port=0, ecs_port=0) as aws:
        for seed in range(options.seed, options.seed + options.seeds):
            folder = (BUILD / f"seed-{seed}").resolve()
            storm = Storm(aws, seed, options.documents, folder)
            began = time.monotonic()
            verdict = storm.run()
            elapsed_s = time.monotonic() - began
            if options.seeds == 1 or not verdict.is_good:
                print(f"\n{storm.timeline}\n")
            mark = "✓" if verdict.is_good else "✗"
            print(f"{mark} seed {seed}: {verdict.equation}")
            print(
                f"  {verdict.page_rows} page rows; {verdict.pages_wasted} pages read in vain "
                f"({verdict.pages_wasted / max(1, verdict.page_rows):.0%}); "
                f"{verdict.lines_repeated} manifest lines repeated, {verdict.lines_rebuilt} rebuilt; "
                f"{elapsed_s:.0f} s\n"
                f"  {storm.workers} workers, {storm.faults_struck} faults between steps, "
                f"{storm.calls_struck} calls to AWS that went wrong; "
                f"a message came {storm.most_receives} times at the most",
                flush=True,
            )
            for problem in verdict.problems:
                print(f"  ✗ {problem}", flush=True)
            if not verdict.is_good:
                print(f"  what the workers said: {folder.relative_to(Path.cwd())}/*.log", flush=True)
                failed.append(seed)
            aws.reset()
    if failed:
        print(f"\n{len(failed)} of {options.seeds} storms lost or doubled something: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
