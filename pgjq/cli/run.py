"""Run until a signal: SIGTERM and Ctrl-C stop gracefully, a second one exits at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.log import logger
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    from pgjq.storage.base import Storage
    from pgjq.worker.service import Runnable


def check_storage(storage: Storage) -> None:
    """Connect once, so that a wrong address or missing schema is an error, not endless log lines.

    The statement is one that every worker and reaper makes, so a login with only their privileges can make it. The
    connection is closed again: forked processes must not inherit it.
    """
    ops = storage.dedicated()
    try:
        drive(ops.next_deadline())
    finally:
        drive(ops.close())


def run(runnable: Runnable, started: str, stopping: str) -> None:
    """Run until SIGTERM or SIGINT, with a message at the start and at the stop."""
    asked = StopRequest()
    with runnable:
        logger.info("%s", started)
        runnable.wait(asked)
        logger.info("%s", stopping)
    logger.info("stopped")
