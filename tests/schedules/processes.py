"""Workers in real processes that serve other queues than the schedules': to kill, freeze, stop and start around ticks.

One process imports pgjq and forks the workers, before it has any thread: a worker starts within some milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from tests.schedules.conftest import wait_until

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = """
import os, signal, sys, traceback
import pgjq

def work(number, where):
    storage = pgjq.open_storage(where) if "://" in where else pgjq.PostgresStorage(where)
    queue = pgjq.Queue(f"q{number}", storage=storage, block_timeout=300)
    queue.execute(lambda job: None)
    queue.start()
    print(os.getpid(), flush=True)
    signal.sigwait({signal.SIGTERM})
    queue.stop(grace=0)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
for number, line in enumerate(sys.stdin):
    if os.fork() == 0:
        try:
            work(number, line.strip())
        except Exception:
            print(repr(traceback.format_exc()), flush=True)
        os._exit(0)
"""


class Workers:
    """Worker processes of one storage, a URL or a connection string, by their process ids."""

    def __init__(self, storage: str) -> None:
        self._storage = storage
        self.running: list[int] = []

    def __enter__(self) -> Self:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in list(self.running):
            self.kill(pid)
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.stdout.read()  # Until the last worker has gone.
        self._parent.wait(10)
        self._parent.stdout.close()

    def start(self, count: int = 1) -> None:
        """Start workers; they have begun to look for due schedules."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{self._storage}\n" * count)
        self._parent.stdin.flush()
        for _ in range(count):
            answer = self._parent.stdout.readline().strip()
            assert answer.isdigit(), answer
            self.running.append(int(answer))

    def kill(self, pid: int) -> None:
        """End a worker in the middle of what it does."""
        self._end(pid, signal.SIGKILL)

    def stop(self, pid: int) -> None:
        """Have a worker stop by itself."""
        self._end(pid, signal.SIGTERM)

    def _end(self, pid: int, number: signal.Signals) -> None:
        """Return when the process is gone: until then it may tick, also after the next step of the clock."""
        self.running.remove(pid)
        os.kill(pid, number)
        wait_until(lambda: not _exists(pid))

    def freeze(self, pid: int) -> None:
        """Have a worker do nothing until `thaw`."""
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        """Let a frozen worker go on."""
        os.kill(pid, signal.SIGCONT)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:  # Its parent ignores SIGCHLD, so no zombie is left.
        return False
    return True
