"""What a process holds: threads, tasks and open files; and how a forked child of it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from pgjq.testing.worker.harness import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable


def pgjq_threads() -> list[str]:
    """Return the names of the threads of pgjq that have not ended."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("pgjq"))


def pgjq_runners() -> list[str]:
    """Return the threads that run handlers."""
    return [name for name in pgjq_threads() if "runner" in name]


class Resources:
    """What this process holds now: threads of pgjq, tasks, and open files, pipes and sockets."""

    def __init__(self) -> None:
        self.threads = pgjq_threads()
        self.files = len(os.listdir("/dev/fd"))  # noqa: PTH208
        try:
            self.tasks = len(asyncio.all_tasks())
        except RuntimeError:  # There is no event loop.
            self.tasks = 0

    def are_within(self, others: Resources, more: int = 0) -> bool:
        """Return whether there are at most this many more of each."""
        threads, tasks = len(self.threads) - len(others.threads), self.tasks - others.tasks
        return max(threads, tasks, self.files - others.files) <= more

    def __str__(self) -> str:
        return f"{self.tasks} tasks, {self.files} open files and the threads {self.threads}"


def in_child(work: Callable[[], Any]) -> str:
    """Run a function in a forked process, and return how that process ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Newer Pythons warn of threads; this tests them.
        pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  (a child must not continue as a second test run)
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return f"ended with {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"
