"""The harness of a worker case: queues and clients in one mode, and ways to wait for them.

A case is a coroutine in both modes. `call` runs a method of the public API: in sync mode it blocks the thread, in
async mode it awaits. So a case in sync mode never suspends, and one source tests `Queue` and `AsyncQueue` alike.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pgjq.blocking import drive
from pgjq.client import AsyncClient, Client
from pgjq.job import NewJob
from pgjq.lease import LeasePolicy
from pgjq.queue import AsyncQueue, Queue, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable

    from pgjq.job import Event
    from pgjq.storage.base import Storage

R = TypeVar("R")

Mode = Literal["sync", "async"]
Style = Literal["function", "coroutine", "callback"]

QUEUE = "mail"
# Polling this rarely cannot hide a missing wake-up.
BLOCK_TIMEOUT = 30.0
# How long a case waits for a result. Shorter than BLOCK_TIMEOUT, and long enough for a busy machine.
LIMIT = 20.0
TICK = 0.005
# The lease of a worker that dies with its job: it expires soon, and nothing renews it.
LAPSING = LeasePolicy(lease=0.05, heartbeat=None)


class EventLog:
    """The published events of a queue or a client, in the order of arrival."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self._events.append(event)

    @property
    def all(self) -> list[Event]:
        """Return the events so far."""
        with self._lock:
            return list(self._events)

    def names(self, job_id: str | None = None) -> list[str]:
        """Return the names of the events so far, of one job or of all."""
        return [event.name for event in self.all if job_id in (None, event.id)]


class Harness:
    """The storage and mode of one case. `reopen` opens the same data as another process would."""

    falls_asleep_after = 0.05

    def __init__(self, storage: Storage, mode: Mode, reopen: Callable[[], Storage], source: str | None = None) -> None:
        self.storage = storage
        self.mode: Mode = mode
        self.source = source
        self._reopen = reopen
        self._opened: list[Storage] = []
        self._running: list[Any] = []
        self._clients: list[Any] = []

    def run(self, case: Coroutine[Any, Any, None]) -> None:
        """Run a case in this mode; then stop and close what it left open."""
        if self.mode == "sync":
            drive(self._cleaning_up(case))
        else:
            asyncio.run(self._cleaning_up(case))

    async def _cleaning_up(self, case: Coroutine[Any, Any, None]) -> None:
        try:
            await case
        finally:
            for queue in list(self._running):
                await self.stop(queue, grace=0)
            for client in self._clients:
                await self.call(client.close)
            if self.mode == "async":
                for storage in (self.storage, *self._opened):
                    await storage.operations("async").close()
            for storage in self._opened:
                storage.close()

    def reopen(self) -> Storage:
        """Open the same data as another process would; MemoryStorage returns itself."""
        storage = self._reopen()
        if storage is not self.storage:
            self._opened.append(storage)
        return storage

    def client(self, storage: Storage | None = None) -> Any:
        """Create a `Client` or an `AsyncClient`."""
        make = Client if self.mode == "sync" else AsyncClient
        client = make(storage or self.storage)
        self._clients.append(client)
        return client

    def queue(
        self,
        handler: Callable[[Any], Any] | None = None,
        *,
        name: str = QUEUE,
        storage: Storage | None = None,
        style: Style = "function",
        **options: Any,
    ) -> Any:
        """Create a `Queue` or `AsyncQueue`; its handler, a plain function, is registered in a style."""
        make: Any = Queue if self.mode == "sync" else AsyncQueue
        queue = make(name, storage=storage or self.storage, **{"block_timeout": BLOCK_TIMEOUT, **options})
        if handler is not None:
            queue.execute(styled(style, handler))
        return queue

    def worker(self, *queues: Any, **options: Any) -> Worker:
        """Create a `Worker`; it has one mode, and serves queues of both."""
        return Worker(*queues, **options)

    async def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of a queue or client, and wait for what it returns."""
        answer = method(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def in_thread(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call a blocking function; in async mode on a thread, so that the event loop continues."""
        if self.mode == "sync":
            return function(*args, **kwargs)
        return await asyncio.to_thread(function, *args, **kwargs)

    async def start(self, queue: Any) -> None:
        """Start a queue or a worker; it is stopped when the case ends."""
        self._running.append(queue)
        await (self.in_thread(queue.start) if isinstance(queue, Worker) else self.call(queue.start))

    async def stop(self, queue: Any, *, grace: float | None = None) -> None:
        """Stop a queue or a worker."""
        if queue in self._running:
            self._running.remove(queue)
        await (self.in_thread(queue.stop, grace) if isinstance(queue, Worker) else self.call(queue.stop, grace))

    @asynccontextmanager
    async def started(self, queue: Any) -> AsyncGenerator[Any]:
        """Run a queue or a worker inside a block."""
        await self.start(queue)
        try:
            yield queue
        finally:
            await self.stop(queue)

    def log_events(self, source: Any, *names: str) -> EventLog:
        """Collect events of a queue or a client; without names, all events that a queue has."""
        log = EventLog()
        for name in names or ("queued", "processing", "failing", "completed", "failed", "cancelled", "stalled"):
            source.on(name, log.add)
        return log

    async def sleep(self, seconds: float) -> None:
        """Let time pass, for cases in which nothing must happen."""
        await (asyncio.sleep(seconds) if self.mode == "async" else _blocking_sleep(seconds))

    async def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        """Wait until a function or coroutine function returns a true value, and return it."""
        deadline = time.monotonic() + LIMIT
        while not (answer := await self.call(holds)):
            assert time.monotonic() < deadline, f"did not happen within {LIMIT:g} s: {what or inspect.getsource(holds)}"
            await self.sleep(TICK)
        return answer

    async def until_state(self, queue: Any, job_id: str, *states: str) -> Any:
        """Wait until a job is in one of these states, and return its status."""

        async def reached() -> Any:
            status = await self.call(queue.get_status, job_id)
            return status if status is not None and status.state in states else None

        return await self.until(reached, f"job {job_id!r} becomes {' or '.join(states)}")

    async def together(self, count: int, call: Callable[[int], Coroutine[Any, Any, R]]) -> list[R]:
        """Make `count` calls at the same time: with threads in sync mode, with tasks in async mode."""
        if self.mode == "async":
            return await asyncio.gather(*(call(n) for n in range(count)))
        with ThreadPoolExecutor(count) as pool:
            return [done.result() for done in [pool.submit(drive, call(n)) for n in range(count)]]

    async def let_workers_sleep(self) -> None:
        """Let idle workers fall asleep, so that only a notification or a due job wakes them."""
        await self.sleep(self.falls_asleep_after)

    async def until_all(self, queue: Any, job_ids: Iterable[str], state: str = "completed") -> None:
        """Wait until all of these jobs are in a state."""
        for job_id in job_ids:
            await self.until_state(queue, job_id, state)

    def background(
        self, method: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Start a call on a thread or as a task; the returned function waits for its result."""
        call = self.call(method, *args, **kwargs)
        if self.mode == "async":
            task = asyncio.ensure_future(call)
            return lambda: asyncio.wait_for(task, LIMIT)
        pool = ThreadPoolExecutor(1)
        future = pool.submit(drive, call)
        pool.shutdown(wait=False)
        return _result_of(future)

    async def abandon(self, *job_ids: str, policy: LeasePolicy = LAPSING, **options: Any) -> None:
        """Enqueue jobs and claim them, like a worker that dies at once."""
        queue = self.queue()
        await self.call(queue.enqueue_many, [NewJob(job_id, None, **options) for job_id in job_ids])
        ops = self.storage.operations("async" if self.mode == "async" else "sync")
        claimed = await ops.claim([queue.name], worker="dead", limit=len(job_ids), policy=policy)
        assert sorted(job.lease.id for job in claimed) == sorted(job_ids)


def _result_of(future: Future[Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def result() -> Any:
        return future.result(LIMIT)

    return result


async def _blocking_sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  (in sync mode a case never suspends)


def echo(job: Any) -> Any:
    """Handle a job by returning its payload."""
    return job.payload


def styled(style: Style, body: Callable[[Any], Any]) -> Any:
    """Return a handler of a style that does the same as a plain function of a job."""
    if style == "function":
        return body

    async def coroutine(job: Any) -> Any:
        await asyncio.sleep(0)
        return body(job)

    def callback(job: Any, done: Callable[..., None]) -> None:
        try:
            result = body(job)
        except Exception as error:  # noqa: BLE001  (a callback reports its error)
            done(error)
        else:
            done(None, result)

    return coroutine if style == "coroutine" else callback
