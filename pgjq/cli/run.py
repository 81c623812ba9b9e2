"""Running something until it is told to stop: SIGTERM and Ctrl-C end it in order, a second one ends it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.log import logger
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    from pgjq.storage.base import Storage
    from pgjq.worker.service import Runnable


def check_storage(storage: Storage) -> None:
    """Reach the storage once, so that a wrong address or a missing schema is an error now and not a log line for ever.

    The question is one that every worker and reaper asks anyway, so a login that may be no more than that can ask it.
    The connection is closed again: what has been forked must not inherit one.
    """
    ops = storage.dedicated()
    try:
        drive(ops.next_deadline())
    finally:
        drive(ops.close())


def run(runnable: Runnable, started: str, stopping: str) -> None:
    """Run until SIGTERM or SIGINT, and say so at both ends."""
    asked = StopRequest()
    with runnable:
        logger.info("%s", started)
        runnable.wait(asked)
        logger.info("%s", stopping)
    logger.info("stopped")
