"""Who plays in the acceptance tests: workers and reapers as people run them, each a process that may be killed.

Whatever one of them does or hears it writes into the table `said`, with the database's time, so that a test can wait
for it and look at its order. Durations are those of the source documents times one factor.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import psycopg

from pgjq import Client, Job, LeaderElection, LeasePolicy, PostgresStorage, Queue, Reaper
from tests.worker.crew import Crew, main
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from pgjq import JobStatus

TABLE = """
    create table said (
        n bigint generated always as identity, at timestamptz not null default clock_timestamp(),
        pid integer not null, what text not null, id text, told jsonb not null
    )
"""
SAY = "insert into said (pid, what, id, told) values (%s, %s, %s, %s)"
SURE = 0.005
DURATIONS = ("lease", "heartbeat", "expire", "stale_age", "reap_interval")


def scaled(policy: LeasePolicy, factor: float) -> LeasePolicy:
    """Shorten every duration of a policy by one factor."""
    short = {name: value * factor for name in DURATIONS if (value := getattr(policy, name)) is not None}
    return dataclasses.replace(policy, **short)


class Teller:
    """Writes down what this process does and hears."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def say(self, what: str, id: str | None = None, **told: Any) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(SAY, [os.getpid(), what, id, json.dumps(told)])

    def hear(self, event: Any) -> None:
        self.say(event.name, event.id, queue=event.queue, count=event.count, action=event.action, reason=event.reason)


class LogTeller(logging.Handler):
    """Writes the log down, too."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.INFO)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.say("log", None, level=record.levelname, message=record.getMessage())


class Part:
    """What a handler does: it says that it runs, and then does what its payload asks for."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def __call__(self, job: Job) -> Any:
        self._teller.say("run", job.id, attempts=job.attempts, checkpoint=job.checkpoint, lease=job.lease)
        asked: dict[str, Any] = job.payload or {}
        do = asked.get("do", "end") if job.lease <= asked.get("times", 1) else asked.get("then", "end")
        return getattr(self, do)(job, asked)

    def end(self, job: Job, _asked: dict[str, Any]) -> dict[str, Any]:
        """Be done."""
        return {"by": os.getpid(), "attempts": job.attempts, "checkpoint": job.checkpoint}

    def hang(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Be a loop without an end, that listens to nobody."""
        while True:
            time.sleep(0.01)

    def last(self, job: Job, asked: dict[str, Any]) -> dict[str, Any]:
        """Take so long, and finish."""
        time.sleep(asked["seconds"])
        self._teller.say("end", job.id)
        return self.end(job, asked)

    def beat(self, job: Job, asked: dict[str, Any]) -> dict[str, Any]:
        """Take so long, but tell so now and then."""
        for _ in range(asked["beats"]):
            time.sleep(asked["seconds"])
            job.heartbeat()
        return self.end(job, asked)

    def save(self, job: Job, asked: dict[str, Any]) -> None:
        """Save how far this came, and go no further."""
        job.save_checkpoint({"page": 7})
        self._teller.say("saved", job.id)
        self.hang(job, asked)

    def work_and_die(self, job: Job, asked: dict[str, Any]) -> None:
        """Do the work, and take the worker down before anybody knows."""
        self._teller.say("end", job.id)
        self.die(job, asked)

    def die(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Take the worker down."""
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Fail."""
        raise RuntimeError


def worker(teller: Teller, conninfo: str, policy: dict[str, Any], concurrency: int = 1) -> None:
    """Be a worker until a signal comes."""
    queue = Queue(
        "q",
        storage=PostgresStorage(conninfo),
        worker_id=f"worker-{os.getpid()}",
        concurrency=concurrency,
        block_timeout=0.2,
        lease_policy=LeasePolicy(**policy),
        grace=0,
    )
    queue.execute(Part(teller))
    queue.on("error", lambda _error: None)
    for name in ("stalled", "completed", "failed", "cancelled"):
        queue.on(name, teller.hear)  # type: ignore[arg-type]
    queue.run()


def reaper(teller: Teller, conninfo: str, policy: dict[str, Any], election: dict[str, Any]) -> None:
    """Be a reaper until a signal comes."""
    one = Reaper(
        storage=PostgresStorage(conninfo),
        lease_policy=LeasePolicy(**policy),
        leader_election=LeaderElection(**election),
    )
    one.on("error", lambda _error: None)
    one.on("stalled", teller.hear)
    one.on("leadership_acquired", lambda: teller.say("leads"))
    one.on("leadership_lost", lambda: teller.say("follows"))
    one.run()


def candidate(_teller: Teller, conninfo: str, election: dict[str, Any], path: str) -> None:
    """Be a reaper that writes down, every few milliseconds, whether it leads, by the clock of the whole machine."""
    one = Reaper(storage=PostgresStorage(conninfo), leader_election=LeaderElection(**election))
    one.on("error", lambda _error: None)
    threading.Thread(target=_sample, args=(one, path), daemon=True).start()
    one.run()


def _sample(one: Reaper, path: str) -> None:
    book = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        before, leads, after = time.monotonic(), one.is_leader, time.monotonic()
        if leads and after - before < SURE:  # Longer than that it may have been stopped in between.
            os.write(book, f"{before} {os.getpid()}\n".encode())
        time.sleep(SURE)


def serve(role: str, direct: str, *arguments: Any) -> None:
    """Play a part. What it says goes to the server directly: the network between may be the one that is broken."""
    teller = Teller(direct)
    logger = logging.getLogger("pgjq")
    logger.setLevel(logging.INFO)
    logger.addHandler(LogTeller(teller))
    logger.propagate = False
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    {"worker": worker, "reaper": reaper, "candidate": candidate}[role](teller, *arguments)


class Stage:
    """A database, the processes that play on it, and what they said."""

    def __init__(self, conninfo: str, storage: PostgresStorage) -> None:
        self.conninfo = conninfo
        self.client = Client(storage)
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(psycopg.connect(conninfo, autocommit=True))
        self._connection.execute(TABLE)
        self._stack.callback(lambda: self._connection.execute("drop table said"))
        self._crew = self._stack.enter_context(Crew("tests.acceptance.cast"))

    def worker(self, policy: LeasePolicy, *, through: Proxy | None = None, concurrency: int = 1) -> int:
        """Start a worker, and return its process id."""
        conninfo = through.conninfo if through else self.conninfo
        return self._crew.fork("worker", self.conninfo, conninfo, dataclasses.asdict(policy), concurrency)

    def reaper(self, policy: LeasePolicy | None = None, election: LeaderElection | None = None) -> int:
        """Start a reaper, and return its process id."""
        values = dataclasses.asdict(policy or LeasePolicy()), dataclasses.asdict(election or LeaderElection())
        return self._crew.fork("reaper", self.conninfo, self.conninfo, *values)

    def candidate(self, election: LeaderElection, path: Path) -> int:
        """Start a reaper that writes into a file when it leads, and return its process id."""
        return self._crew.fork("candidate", self.conninfo, self.conninfo, dataclasses.asdict(election), str(path))

    def network(self) -> Proxy:
        """A way to the server that can be broken."""
        return self._stack.enter_context(Proxy(self.conninfo))

    def kill(self, pid: int) -> None:
        self._crew.kill(pid)

    def signal(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)

    def said(self, what: str, id: str | None = None, pid: int | None = None) -> list[dict[str, Any]]:
        """Everything of a kind that was said so far, in order."""
        rows = self._connection.execute(
            "select pid, id, at, told from said where what = %s and (id = %s or %s::text is null)"
            " and (pid = %s or %s::integer is null) order by n",
            [what, id, id, pid, pid],
        )
        return [{"pid": pid, "id": job, "at": at, **told} for pid, job, at, told in rows]

    def wait(self, what: str, id: str | None = None, *, times: int = 1, pid: int | None = None) -> dict[str, Any]:
        """Return what was said for the nth time, once it was; the suite's time-out is the limit."""
        self.until(lambda: len(self.said(what, id, pid)) >= times)
        return self.said(what, id, pid)[times - 1]

    def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            time.sleep(0.01)

    def enqueue(self, id: str, do: str, **asked: Any) -> None:
        """Enqueue a job that asks for something; what else it is told are options, if they are some."""
        options = {name: asked.pop(name) for name in ("max_attempts", "retry_delay") if name in asked}
        assert self.client.enqueue("q", id, {"do": do, **asked}, **options).status == "queued"

    def status(self, id: str) -> JobStatus:
        status = self.client.get_status("q", id)
        assert status is not None
        return status

    def clock(self) -> datetime:
        """The database's clock."""
        row = self._connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        return row[0]

    def begun(self, id: str) -> datetime:
        """When a job was claimed, by the database's clock."""
        at = self.status(id).started_at
        assert at is not None
        return at

    def finished(self, *ids: str) -> None:
        """Wait until jobs are completed."""
        self.until(lambda: all(self.status(job).state == "completed" for job in ids))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


if __name__ == "__main__":
    main(serve)
