"""A storage that plays scenarios, with its clock and what a scenario leaves behind: runs, waiters, subscribers.

`start` brings an empty storage, and a clock that stands still. A subject has the blocking and the async client of its
storage, and uses the one that the scenario asks for.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import psycopg
import redis
from psycopg import sql

from pgjq import AsyncClient, Client, FileStorage, MemoryStorage, PostgresStorage, RedisStorage
from pgjq.blocking import drive
from pgjq.errors import PgjqError
from pgjq.job import LIVE, NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.serde import JsonSerde
from pgjq.testing import ManualClock, RedisClock
from tests.databases import CLEAN

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from pgjq.job import Event
    from pgjq.storage.base import Claimed, ResultWaiter, Storage, Subscription
    from pgjq.testing import Clock
    from tests.storage_comparison.steps import Step

MADE = re.compile(r"[0-9a-f]{36}|[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")
EPOCH = datetime.fromtimestamp(0, UTC)
FENCE = "fence"
FENCE_JOB = Submission("fence", b"", settings(NewJob(None, None)))
# Storages number the workers that they know and keep the numbers: each scenario has workers of its own.
PLAYS = count()


class Subject(ABC):
    """Plays the steps of one scenario after another on one storage."""

    name: str
    storage: Storage
    clock: Clock

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    @abstractmethod
    def prepare(self) -> None:
        """Have an empty storage, and its clock at the start."""

    @abstractmethod
    def reconnect(self) -> None:
        """Close the storage and open it again, with the same jobs."""

    def start(self, mode: str) -> None:
        """Begin a scenario."""
        self.mode = mode
        self.runs: list[Claimed] = []
        self._play = next(PLAYS)
        self._made: dict[str, str] = {}
        self._waiters: dict[int, ResultWaiter] = {}
        self.answers: dict[int, Any] = {}
        self._feeds: list[Subscription] = []
        self._heard: list[list[Event]] = []
        self.prepare()
        self._connect()

    def end(self) -> None:
        """End a scenario."""
        for closing in (*self._waiters.values(), *self._feeds):
            self._wait(closing.close())
        self._waiters, self._feeds, self._heard = {}, [], []

    def reopen(self) -> None:
        """Close the storage, with its waiters and subscribers, and open it again."""
        self.end()
        self.reconnect()
        self._connect()

    def close(self) -> None:
        """End all of it."""
        self._close_storage()
        self._loop.close()

    def _close_storage(self) -> None:
        self._loop.run_until_complete(self.storage.operations("async").close())
        self.storage.close()

    def __enter__(self) -> Self:
        self.prepare()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def play(self, step: Step) -> Any:
        """Do a step; an error is an answer, too."""
        try:
            answer = step.play(self)
        except Exception as error:  # noqa: BLE001
            answer = error
        self._ask_waiters()
        return answer

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the client."""
        if self.mode == "sync":
            return getattr(self._client, method)(*args, **kwargs)
        return self._wait(getattr(self._async_client, method)(*args, **kwargs))

    def operate(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Do what a worker or a reaper does."""
        return self._wait(getattr(self.storage.operations(self.mode), method)(*args, **kwargs))

    def _wait(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return drive(doing) if self.mode == "sync" else self._loop.run_until_complete(doing)

    def _connect(self) -> None:
        self._client, self._async_client = Client(self.storage), AsyncClient(self.storage)

    def run(self, number: int) -> Claimed | None:
        """Find the run that was claimed so many claims ago."""
        return self.runs[-1 - number % len(self.runs)] if self.runs else None

    def worker(self, name: str) -> str:
        """Name a worker of this scenario."""
        return f"{name}~{self._play}"

    def real(self, job_id: str) -> str:
        """Return the generated id that a scenario calls "made 0", or an id as it is."""
        return next((real for real, name in self._made.items() if name == job_id), job_id)

    def plain(self, text: str) -> str:
        """Name generated ids by their order, and workers as the scenario does."""
        text = MADE.sub(lambda found: self._made.setdefault(found[0], f"made {len(self._made)}"), text)
        return text.replace(f"~{self._play}", "")

    def result_waiter(self, queue: str, job: NewJob) -> Any:
        """Enqueue a job and wait for it."""
        assert job.id is not None
        waiter: ResultWaiter = self.operate("result_waiter", queue, job.id)
        try:
            result = self._wait(waiter.enqueue(Submission(job.id, JsonSerde().serialize(job.payload), settings(job))))
        except PgjqError:
            self._wait(waiter.close())
            self._visit(queue)  # A refused job may leave its queue behind, empty.
            raise
        if result.status == "completed":  # That was the answer, and there is none to wait for.
            self._wait(waiter.close())
        else:
            self._waiters[len(self.answers)] = waiter
            self.answers[len(self.answers)] = None
        return result

    def _visit(self, queue: str) -> None:
        """Have a queue exist, and leave no job in it."""
        self.operate("enqueue", queue, [FENCE_JOB])
        self.operate("delete", queue, [FENCE_JOB.id])

    def _ask_waiters(self) -> None:
        """Let those waiters go whose jobs have ended: what becomes of the job later is not theirs to say."""
        for number, waiter in list(self._waiters.items()):
            self.answers[number] = answer = self._wait(waiter.answer(0.0))
            if answer is None or answer.state not in LIVE:
                self._wait(self._waiters.pop(number).close())

    def subscribe(self, queue: str | None) -> None:
        """Hear of what happens from now on; what happened before, a storage may generate or not.

        The first subscriber hears of all queues, so that it hears of the fence, too.
        """
        is_first = not self._feeds
        if is_first:
            self._open_feed(None)
        self._listen()
        if is_first:
            self._heard = [[]]
        self._open_feed(queue)

    def _open_feed(self, queue: str | None) -> None:
        self._feeds.append(self.operate("subscribe", queue))
        self._heard.append([])

    def events(self) -> list[list[Event]]:
        """Take what each subscriber heard."""
        self._listen()
        heard, self._heard = self._heard, [[] for _ in self._feeds]
        return heard

    def _listen(self) -> None:
        """Wait for an event that is the last one: all events before it have come then."""
        if not self._feeds:
            return
        self._visit(FENCE)
        fenced = False
        while not fenced:
            batch = self._wait(self._feeds[0].next(30.0))
            assert batch, "an event that was waited for did not come"
            fenced = any(event.queue == FENCE for event in batch)
            self._hear(0, batch)
        for number, feed in enumerate(self._feeds[1:], 1):
            self._hear(number, self._wait(feed.next(0.0)))

    def _hear(self, number: int, events: list[Event]) -> None:
        self._heard[number] += [event for event in events if event.queue != FENCE]


class MemorySubject(Subject):
    """Memory, which the others are compared with."""

    name = "memory"

    def prepare(self) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(clock=self.clock)

    def reconnect(self) -> None:
        """Do nothing: the jobs live as long as the storage."""


class FileSubject(Subject):
    """A directory; each scenario starts with a new one."""

    name = "file"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory / "jobs"
        self._open()

    def prepare(self) -> None:
        self._close_storage()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._open()

    def reconnect(self) -> None:
        self._close_storage()
        self.storage = FileStorage(self._directory, clock=self._time)

    def _open(self) -> None:
        self.clock = self._time = ManualClock()
        self.storage = FileStorage(self._directory, clock=self._time)


class PostgresSubject(Subject):
    """A migrated database."""

    name = "postgres"

    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self._conninfo = conninfo
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self.storage = PostgresStorage(conninfo)

    def prepare(self) -> None:
        self._connection.execute(CLEAN)
        self.clock = _PostgresClock(self._connection)

    def reconnect(self) -> None:
        self._close_storage()
        self.storage = PostgresStorage(self._conninfo)

    def close(self) -> None:
        super().close()
        self._connection.execute(CLEAN)
        self._connection.close()


class _PostgresClock(ManualClock):
    """`PostgresClock` on a connection that stays open."""

    _SET = sql.SQL("create or replace function pgjq.now() returns timestamptz language sql stable return {}")

    def __init__(self, connection: psycopg.Connection) -> None:
        super().__init__()
        self._connection = connection
        self.advance(0)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._connection.execute(self._SET.format(sql.Literal(self())))


class RedisSubject(Subject):
    """A Redis or a Valkey of one's own: its data goes."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__()
        self.name = name
        self._url = url
        self._server = redis.Redis.from_url(url)
        self._open()

    def prepare(self) -> None:
        self._server.flushall()
        self.clock = RedisClock(self._storage)

    def reconnect(self) -> None:
        micros = self._storage.shared.frozen or 0
        self._close_storage()
        self._open()
        self.clock = RedisClock(self._storage, start=EPOCH + timedelta(microseconds=micros))

    def close(self) -> None:
        super().close()
        self._server.flushall()
        self._server.close()

    def _open(self) -> None:
        self.storage = self._storage = RedisStorage(self._url)
