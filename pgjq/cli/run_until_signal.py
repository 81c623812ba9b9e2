"""Run until the end of the work or a signal: a graceful stop; a second one exits at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.log_output import logger
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    from pgjq.queue import Worker
    from pgjq.storage.base import Storage
    from pgjq.worker.engine_runner import Runnable


def check_storage(storage: Storage) -> None:
    """Connect once, so that a wrong address or missing schema is one error, not endless logs.

    The statement is one that every worker and reaper makes, so a login with only their privileges can make it. The
    connection is closed again: forked processes must not inherit it.
    """
    ops = storage.dedicated()
    try:
        drive(ops.next_deadline())
    finally:
        drive(ops.close())


def run(runnable: Runnable, started: str, stopping: str) -> None:
    """Run until SIGTERM, SIGINT or the end of the work; log the start and the stop."""
    asked = StopRequest()
    with runnable:
        logger.info("%s", started)
        runnable.wait(asked)
        logger.info("%s", "nothing is due" if runnable.finished else stopping)
    logger.info("stopped")


def run_until(worker: Worker, started: str, stopping: str, seconds: float, grace: float | None) -> None:
    """Run for so many seconds at most; then running jobs have the grace to end, by default none."""
    asked, until = StopRequest(), time.monotonic() + seconds
    worker.start()
    try:
        logger.info("%s", started)
        worker.wait(asked, lambda: time.monotonic() >= until)
        is_late = time.monotonic() >= until and not worker.finished
        logger.info("%s", "nothing is due" if worker.finished else "the deadline has passed" if is_late else stopping)
    finally:
        late_grace = grace or 0.0
        worker.stop(late_grace if time.monotonic() >= until else None)
    logger.info("stopped")
