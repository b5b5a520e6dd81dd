"""The server process for S3, SQS, DynamoDB, CloudWatch Logs and Secrets Manager: ministack.

Run as ``python -m local_aws.data_server`` by ``local_aws.running``, which sets the variables that ministack
reads as it is imported. Its own ``main`` is not used: it binds the port itself, and leaves files in /tmp.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_aws import enforcing, long_queues, presigned
from local_aws.recording import Recorder, recording_app
from local_aws.servers import BACKLOG, end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP_ALIVE_S = 75.0
_GRACE_S = 0.5


def main() -> None:
    """Serve until a signal comes or the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--enforce", action="store_true")
    options = parser.parse_args()
    # What is in it is gone with it anyway: no need to wait for anyone.
    end_with_parent(options.parent, lambda: os._exit(1))
    long_queues.install()
    if options.enforce:
        enforcing.install()
    else:
        presigned.install()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        recorder = Recorder(options.calls) if options.calls else None
        runner.run(_serve(options.socket, recorder))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is: a fifth less CPU per request. Airflow's web server brings it along."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(descriptor: int, recorder: Recorder | None) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config
    from ministack.app import app

    config = Config()
    config.bind = [f"fd://{descriptor}"]
    config.backlog = BACKLOG
    config.keep_alive_timeout = _KEEP_ALIVE_S
    config.graceful_timeout = _GRACE_S
    config.loglevel = "WARNING"
    ended = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, ended.set)

    async def until_ended() -> None:
        await ended.wait()

    served: Any = recording_app(app, recorder) if recorder else app
    await serve(served, config, shutdown_trigger=until_ended)


if __name__ == "__main__":
    main()
