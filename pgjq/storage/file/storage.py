"""FileStorage and its operations in two modes.

In sync mode an operation runs on the caller's thread. In async mode it runs on one of a few threads of the storage, so
that no event loop waits for a lock or a disk. A forked child closes the files that it inherited and opens its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pgjq.deadline import NO_ANSWER, wait_in_time
from pgjq.errors import PgjqError, StorageUnavailableError, ValidationError, storage_closed
from pgjq.storage.base import Capabilities, Operations
from pgjq.storage.clock import StorageClock
from pgjq.storage.file.error_translation import translated
from pgjq.storage.file.layout import Layout
from pgjq.storage.file.leader import Leaders
from pgjq.storage.file.replica import Replica
from pgjq.storage.file.wakeup import WakeupPipe, wake
from pgjq.storage.file.workers import WorkerFiles
from pgjq.storage.model.operations import ModelOperations
from pgjq.storage.model.subscribers import Subscribers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.storage.base import ResultWaiter, Subscription
    from pgjq.storage.model.jobs import Jobs

R = TypeVar("R")

THREADS = 4
# Extra time after a deadline for a thread that waits for the lock to raise an error that names the holder.
REFUSAL_SECONDS = 0.1


class FileStorage:
    """Jobs in a directory, for any number of processes and threads of one machine.

    The directory is made if it is missing, and must be empty at the first use. `clock` returns an aware datetime, for
    tests that move time, as for `MemoryStorage`; all processes that use the directory must use the same clock.
    """

    capabilities = Capabilities(
        durable=True,
        processes=True,
        machines=False,
        transactions=False,
        leader_election=True,
        definitions=True,
        notice="at once; where there are no named pipes, every 20 ms",
        clock="the machine's, or `clock=`",
        url="`file:///directory`",
    )

    def __init__(self, directory: str | os.PathLike[str], *, clock: Callable[[], datetime] | None = None) -> None:
        try:
            self.layout = Layout(Path(os.path.abspath(os.fspath(directory))))  # noqa: PTH100  (links stay links)
        except TypeError as error:
            raise ValidationError(f"directory must be a path, not {type(directory).__name__}") from error
        if not os.fspath(directory):
            raise ValidationError("directory must not be empty")
        self.clock = StorageClock(clock, self, lambda storage: storage.subscribers.wake())
        self._operations: dict[Mode, Operations] = {
            "sync": FileOperations(self, "sync"),
            "async": FileOperations(self, "async"),
        }
        self._closed = False
        self._start()
        os.register_at_fork(after_in_child=partial(_start_anew, weakref.ref(self)))

    def _start(self) -> None:
        self.subscribers = Subscribers()
        self.replica = Replica(self.layout, self.clock.now, self.subscribers, self._notify_others)
        self.workers = WorkerFiles(self.layout)
        self.leaders = Leaders(self.layout)
        self.threads = ThreadPoolExecutor(THREADS, "pgjq file")
        self._wakeup: WakeupPipe | None = None
        self._opening = threading.Lock()

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        return self._operations[mode]

    def dedicated(self) -> Operations:
        """Return the blocking operations: there are no connections, and the lock is held briefly."""
        return self._operations["sync"]

    @property
    def listens(self) -> bool:
        """Whether other processes notify this one of changes."""
        return self._wakeup is not None

    def listen(self) -> None:
        """Have other processes notify this one of changes from now on."""
        with self._opening:
            if not self.listens and not self._closed:
                self.replica.do(lambda _: None)  # Earlier changes must not notify subscribers.
                with translated(self.layout.directory):
                    self._wakeup = WakeupPipe(self.layout.notifications, self._follow)

    def _follow(self) -> None:
        try:
            self.replica.follow()
        except PgjqError:
            return  # The next operation raises the error to its caller; the listener goes on.

    def _notify_others(self) -> None:
        own = self._wakeup
        wake(self.layout.notifications, but=None if own is None else own.name)

    def close(self) -> None:
        """Close the files and end every wait; the jobs stay stored."""
        if self._closed:
            return
        self._closed = True
        self.replica.abort_lock_waits()
        with self._opening:
            wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup.close()
        self.replica.close()
        self.subscribers.close()
        self.threads.shutdown(wait=False)

    def restart(self) -> None:
        """Start again in a forked child."""
        self.replica.abandon()
        if self._wakeup is not None:
            self._wakeup.abandon()
        self._start()
        if self._closed:
            self.replica.close()


class FileOperations(ModelOperations):
    """The operations, in one mode."""

    def __init__(self, storage: FileStorage, mode: Mode) -> None:
        super().__init__("FileStorage", mode)
        self._storage = storage

    async def _run(self, call: Callable[[], R]) -> R:
        if self._mode == "sync":
            return call()
        try:
            running = asyncio.get_running_loop().run_in_executor(self._storage.threads, copy_context().run, call)
            return await wait_in_time(running, REFUSAL_SECONDS)
        except TimeoutError as error:
            raise StorageUnavailableError(NO_ANSWER) from error
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise storage_closed() from error

    async def _do(self, verb: Callable[[Jobs], R]) -> R:
        return await self._run(partial(self._storage.replica.do, verb))

    async def _do_unsynced(self, verb: Callable[[Jobs], R]) -> R:
        return await self._run(partial(self._storage.replica.do, verb, durable=False))

    @property
    def _subscribers(self) -> Subscribers:
        return self._storage.subscribers

    @property
    def _clock(self) -> StorageClock:
        return self._storage.clock

    @property
    def _registry(self) -> WorkerFiles:
        return self._storage.workers

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """See `Operations`."""
        return await self._do(lambda jobs: self._storage.leaders.elect(role, candidate, ttl, jobs.now))

    async def leads(self, role: str, candidate: str) -> bool:
        """See `Operations`."""
        return self._storage.leaders.leads(role, candidate)

    async def resign(self, role: str, candidate: str) -> None:
        """See `Operations`."""
        return await self._do(lambda jobs: self._storage.leaders.resign(role, candidate, jobs.now))

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        await self._run(self._storage.listen)
        await self._do_unsynced(lambda _: None)  # Skips earlier events; raises if the storage is closed.
        return self._storage.subscribers.subscribe(queue, self._mode)

    async def result_waiter(self, queue: str, job_id: str) -> ResultWaiter:
        """See `Operations`."""
        if not self._storage.listens:
            await self._run(self._storage.listen)
        return await super().result_waiter(queue, job_id)

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`."""
        if not self._storage.listens:
            await self._run(self._storage.listen)
        return await super().wait_for_work(queues, timeout, poll)

    async def watch_schedules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """See `ScheduleOperations`."""
        if not self._storage.listens:
            await self._run(self._storage.listen)
        return await super().watch_schedules(changed)

    async def close(self) -> None:
        """Do nothing: the operations hold no connections."""


def _start_anew(storage: weakref.ref[FileStorage]) -> None:
    here = storage()
    if here is not None:
        here.restart()
