"""PgQueuer's worker in a process of its own, draining a backlog or waiting for single jobs.

`QueueManager.run` in its drain mode, on uvloop and asyncpg, with no limit on concurrent tasks. PgQueuer's own log of
outcomes is its default and stays on; what it folds into statistics on a timer is turned off, because that serves
people. It is counted where it writes its log, as pgjq is where it settles.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from benchmarks.databases import connect, run_statement, statement
from benchmarks.jobs import QUEUE
from benchmarks.pgqueuer_peer import PgQueuer, pgqueuer
from benchmarks.processes import process

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Sequence
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

ENQUEUED_AT_ONCE = 1_000
POOL = 5


class PgQueuerWorker:
    """The peer: somebody who enqueues, and a process that works."""

    settings_to_try: ClassVar = [(batch, pooled) for batch in (100, 500, 1_000) for pooled in (False, True)]

    def __init__(self, enqueuer: PgQueuer, orders: Connection, conninfo: str) -> None:
        self._enqueuer = enqueuer
        self._orders = orders
        self._conninfo = conninfo
        self.batch, self.pooled = 500, False

    @property
    def settings(self) -> str:
        """Its settings, for people."""
        return f"batches of {self.batch}, {f'pool of {POOL}' if self.pooled else 'one connection'}"

    def rate(self, values: Sequence[dict[str, Any]]) -> float:
        """Fill the queue, then have it drained."""
        self._enqueuer.rate(values, ENQUEUED_AT_ONCE)
        run_statement(self._conninfo, "pgqueuer_vacuum")
        run_statement(self._conninfo, "checkpoint")
        self._orders.send((len(values), self.batch, self.pooled))
        rate: float = self._orders.recv()
        with connect(self._conninfo) as connection:
            row = connection.execute(statement("pgqueuer_left")).fetchone()
        assert row == (0,)
        return rate


@contextmanager
def pgqueuer_worker(server: EmbeddedServer) -> Generator[PgQueuerWorker]:
    """Start the process, with a database of its own."""
    with pgqueuer(server) as enqueuer, process(_drain, enqueuer.conninfo) as orders:
        yield PgQueuerWorker(enqueuer, orders, enqueuer.conninfo)


def _drain(orders: Connection, conninfo: str) -> None:
    order: tuple[int, int, bool] | None
    while (order := orders.recv()) is not None:
        orders.send(_run(_drained(conninfo, *order)))


def note_starts(orders: Connection, conninfo: str) -> None:
    """Work all the time; answer to an order when each job's handler began, by the number that is its payload."""
    _run(_noted(orders, conninfo))


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _drained(conninfo: str, count: int, batch: int, pooled: bool) -> float:  # noqa: FBT001
    from pgqueuer.core.qm import QueueManager
    from pgqueuer.types import QueueExecutionMode

    connection, queries = await _connected(conninfo, pooled=pooled)
    finished, logged, log_jobs = 0.0, 0, queries.log_jobs

    async def counted_log_jobs(jobs: Sequence[Any]) -> None:
        nonlocal finished, logged
        await log_jobs(jobs)
        logged += len(jobs)
        if logged == count:
            finished = time.perf_counter()

    queries.log_jobs = counted_log_jobs
    manager = QueueManager(queries)

    @manager.entrypoint(QUEUE)
    async def handle(job: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        json.loads(job.payload)["order"]

    start = time.perf_counter()
    await manager.run(batch_size=batch, mode=QueueExecutionMode.drain, log_aggregation_interval=timedelta(0))
    await connection.close()
    return count / (finished - start)


async def _noted(orders: Connection, conninfo: str) -> None:
    from pgqueuer.core.qm import QueueManager

    connection, queries = await _connected(conninfo, pooled=False)
    manager = QueueManager(queries)
    starts: dict[int, int] = {}

    @manager.entrypoint(QUEUE)
    async def handle(job: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        starts[json.loads(job.payload)] = time.monotonic_ns()

    working = asyncio.create_task(manager.run(log_aggregation_interval=timedelta(0)))
    orders.send("working")
    while await asyncio.to_thread(orders.recv) is not None:
        orders.send(dict(starts))
        starts.clear()
    manager.shutdown.set()
    await working
    await connection.close()


async def _connected(conninfo: str, *, pooled: bool) -> tuple[Any, Any]:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]
    from pgqueuer.queries import Queries

    if pooled:
        pool = cast("Any", await asyncpg.create_pool(conninfo, min_size=POOL, max_size=POOL))  # pyright: ignore[reportUnknownMemberType]
        return pool, Queries.from_asyncpg_pool(pool)
    connection = cast("Any", await asyncpg.connect(conninfo))  # pyright: ignore[reportUnknownMemberType]
    return connection, Queries.from_asyncpg_connection(connection)
