"""Workers and reapers of the acceptance tests, each a process that a test can kill.

A process records what it does and which events it receives in the table `record`, with the database's time, so that a
test can wait for a record and check the order. Tests scale the durations of a policy by one factor.
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
from tests.worker.proxy import Proxy
from tests.worker.worker_processes import ForkedProcesses, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from pgjq import JobStatus

TABLE = """
    create table record (
        n bigint generated always as identity, at timestamptz not null default clock_timestamp(),
        pid integer not null, what text not null, id text, told jsonb not null
    )
"""
INSERT_RECORD = "insert into record (pid, what, id, told) values (%s, %s, %s, %s)"
COUNT_RECORDS = "select count(*) from record where what = %s and id = %s"
SURE = 0.005
DURATIONS = ("lease", "heartbeat", "expire", "stale_age", "reap_interval")


def scaled(policy: LeasePolicy, factor: float) -> LeasePolicy:
    """Shorten every duration of a policy by one factor."""
    short = {name: value * factor for name in DURATIONS if (value := getattr(policy, name)) is not None}
    return dataclasses.replace(policy, **short)


class Recorder:
    """Record what this process does and which events it receives."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def record(self, what: str, id: str | None = None, **told: Any) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(INSERT_RECORD, [os.getpid(), what, id, json.dumps(told)])

    def count(self, what: str, id: str) -> int:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            row = connection.execute(COUNT_RECORDS, [what, id]).fetchone()
        assert row is not None
        return row[0]

    def record_event(self, event: Any) -> None:
        self.record(
            event.name, event.id, queue=event.queue, count=event.count, action=event.action, reason=event.reason
        )


class LogRecorder(logging.Handler):
    """Record log lines."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.INFO)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        self._recorder.record("log", None, level=record.levelname, message=record.getMessage())


class PayloadHandler:
    """A handler that records its run, and then does what the payload says."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, job: Job) -> Any:
        self._recorder.record("run", job.id, attempts=job.attempts, checkpoint=job.checkpoint, lease=job.lease)
        asked: dict[str, Any] = job.payload or {}
        # Neither by leases, of which a claim takes one whose run does not start in time, nor by attempts, of which a
        # released run takes none.
        run = self._recorder.count("run", job.id)
        do = asked.get("do", "end") if run <= asked.get("times", 1) else asked.get("then", "end")
        return getattr(self, do)(job, asked)

    def end(self, job: Job, _asked: dict[str, Any]) -> dict[str, Any]:
        """Return a result."""
        return {"by": os.getpid(), "attempts": job.attempts, "checkpoint": job.checkpoint}

    def hang(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Loop forever, and ignore the abort signal."""
        while True:
            time.sleep(0.01)

    def last(self, job: Job, asked: dict[str, Any]) -> dict[str, Any]:
        """Run for some seconds, and return a result."""
        time.sleep(asked["seconds"])
        self._recorder.record("end", job.id)
        return self.end(job, asked)

    def beat(self, job: Job, asked: dict[str, Any]) -> dict[str, Any]:
        """Run for some seconds, with heartbeats."""
        for _ in range(asked["beats"]):
            time.sleep(asked["seconds"])
            job.heartbeat()
        return self.end(job, asked)

    def save(self, job: Job, asked: dict[str, Any]) -> None:
        """Save a checkpoint, and hang."""
        job.save_checkpoint({"page": 7})
        self._recorder.record("saved", job.id)
        self.hang(job, asked)

    def work_and_die(self, job: Job, asked: dict[str, Any]) -> None:
        """Do the work, and kill the worker before it settles the job."""
        self._recorder.record("end", job.id)
        self.die(job, asked)

    def die(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Kill the worker."""
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, _job: Job, _asked: dict[str, Any]) -> None:
        """Fail."""
        raise RuntimeError


def worker(recorder: Recorder, conninfo: str, policy: dict[str, Any], concurrency: int = 1) -> None:
    """Run a worker until a signal arrives."""
    queue = Queue(
        "q",
        storage=PostgresStorage(conninfo),
        worker_id=f"worker-{os.getpid()}",
        concurrency=concurrency,
        block_timeout=0.2,
        lease_policy=LeasePolicy(**policy),
        grace=0,
    )
    queue.execute(PayloadHandler(recorder))
    queue.on("error", lambda _error: None)
    for name in ("stalled", "completed", "failed", "cancelled"):
        queue.on(name, recorder.record_event)  # type: ignore[arg-type]
    queue.run()


def reaper(recorder: Recorder, conninfo: str, policy: dict[str, Any], election: dict[str, Any]) -> None:
    """Run a reaper until a signal arrives."""
    one = Reaper(
        storage=PostgresStorage(conninfo),
        lease_policy=LeasePolicy(**policy),
        leader_election=LeaderElection(**election),
    )
    one.on("error", lambda _error: None)
    one.on("stalled", recorder.record_event)
    one.on("leadership_acquired", lambda: recorder.record("leads"))
    one.on("leadership_lost", lambda: recorder.record("follows"))
    one.run()


def candidate(_recorder: Recorder, conninfo: str, election: dict[str, Any], path: str) -> None:
    """Run a reaper that writes every few milliseconds whether it leads, by the machine's monotonic clock."""
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
    """Run one role. Records go to the server directly, since a test may break the network in between."""
    recorder = Recorder(direct)
    logger = logging.getLogger("pgjq")
    logger.setLevel(logging.INFO)
    logger.addHandler(LogRecorder(recorder))
    logger.propagate = False
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    {"worker": worker, "reaper": reaper, "candidate": candidate}[role](recorder, *arguments)


class Processes:
    """A database, the processes that use it, and their records."""

    def __init__(self, conninfo: str, storage: PostgresStorage) -> None:
        self.conninfo = conninfo
        self.client = Client(storage)
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(psycopg.connect(conninfo, autocommit=True))
        self._connection.execute(TABLE)
        self._stack.callback(lambda: self._connection.execute("drop table record"))
        self._workers = self._stack.enter_context(ForkedProcesses("tests.acceptance.processes"))

    def worker(self, policy: LeasePolicy, *, through: Proxy | None = None, concurrency: int = 1) -> int:
        """Start a worker, and return its process id."""
        conninfo = through.conninfo if through else self.conninfo
        return self._workers.fork("worker", self.conninfo, conninfo, dataclasses.asdict(policy), concurrency)

    def reaper(self, policy: LeasePolicy | None = None, election: LeaderElection | None = None) -> int:
        """Start a reaper, and return its process id."""
        values = dataclasses.asdict(policy or LeasePolicy()), dataclasses.asdict(election or LeaderElection())
        return self._workers.fork("reaper", self.conninfo, self.conninfo, *values)

    def candidate(self, election: LeaderElection, path: Path) -> int:
        """Start a reaper that writes into a file when it leads, and return its process id."""
        return self._workers.fork("candidate", self.conninfo, self.conninfo, dataclasses.asdict(election), str(path))

    def network(self) -> Proxy:
        """Return a proxy to the server that the test can break."""
        return self._stack.enter_context(Proxy(self.conninfo))

    def kill(self, pid: int) -> None:
        self._workers.kill(pid)

    def signal(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)

    def records(self, what: str, id: str | None = None, pid: int | None = None) -> list[dict[str, Any]]:
        """Return all records of one kind so far, in order."""
        rows = self._connection.execute(
            "select pid, id, at, told from record where what = %s and (id = %s or %s::text is null)"
            " and (pid = %s or %s::integer is null) order by n",
            [what, id, id, pid, pid],
        )
        return [{"pid": pid, "id": job, "at": at, **told} for pid, job, at, told in rows]

    def wait(self, what: str, id: str | None = None, *, times: int = 1, pid: int | None = None) -> dict[str, Any]:
        """Wait for the nth record of one kind and return it; the limit is the test timeout."""
        self.until(lambda: len(self.records(what, id, pid)) >= times)
        return self.records(what, id, pid)[times - 1]

    def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            time.sleep(0.01)

    def enqueue(self, id: str, do: str, **asked: Any) -> None:
        """Enqueue a job whose payload says what its handler does; job options are passed on."""
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
