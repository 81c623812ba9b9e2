"""Processes for measurements that need more than one: writers that enqueue together, and a worker that takes away.

They are processes, because eight threads of one interpreter would wait for each other's bytecode long before they wait
for a lock of the server, and the lock is what is to be seen. The same processes serve both databases of a comparison,
by turns, so neither side can have the luckier ones.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pgjq
from benchmarks.jobs import QUEUE, payload, random_ids
from benchmarks.processes import SPAWN, process
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

    from pgjq.storage.base import Operations

CLAIM = 200
NAP = 0.2  # How long the worker sleeps before it looks whether it should go on.


class Crew:
    """Writers, and one worker, that wait for orders."""

    def __init__(self, writers: Sequence[Connection], worker: Connection) -> None:
        self._writers = writers
        self._worker = worker

    def rate(self, database: int, seconds: float, *, with_worker: bool) -> float:
        """Have all writers enqueue into one of the databases for some seconds; return jobs a second of all together."""
        if with_worker:
            self._worker.send(database)
            self._worker.recv()
        for writer in self._writers:
            writer.send((database, seconds))
        rate = sum(writer.recv() for writer in self._writers)
        if with_worker:
            self._worker.send("stop")
            assert self._worker.recv() > 0
        return rate


@contextmanager
def crew(conninfos: Sequence[str], count: int) -> Generator[Crew]:
    """Start the processes, and end them."""
    start_together = SPAWN.Barrier(count)
    with ExitStack() as stack:
        writers = [stack.enter_context(process(_write, conninfos, start_together)) for _ in range(count)]
        worker = stack.enter_context(process(_work, conninfos))
        yield Crew(writers, worker)


def _write(orders: Connection, conninfos: Sequence[str], start_together: Barrier) -> None:
    clients: list[pgjq.Client] = [
        pgjq.Client(pgjq.PostgresStorage(conninfo, min_size=1, max_size=1)) for conninfo in conninfos
    ]
    order: tuple[int, float] | None
    while (order := orders.recv()) is not None:
        database, seconds = order
        start_together.wait()
        orders.send(_enqueue_for(clients[database], seconds))
    for client in clients:
        client.close()


def _enqueue_for(client: pgjq.Client, seconds: float) -> float:
    """Enqueue one job after another, and return how many a second."""
    value, (stem,), count = payload(1), random_ids(1), 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        client.enqueue(QUEUE, f"{stem}-{count}", value)
        count += 1
    return count / elapsed


def _work(orders: Connection, conninfos: Sequence[str]) -> None:
    storages: list[pgjq.PostgresStorage] = [
        pgjq.PostgresStorage(conninfo, min_size=1, max_size=1) for conninfo in conninfos
    ]
    database: int | None
    while (database := orders.recv()) is not None:
        operations = storages[database].operations("sync")
        orders.send("working")
        completed = 0
        while not orders.poll():
            completed += _sleep_and_work(operations)
        orders.recv()
        orders.send(completed)
    for storage in storages:
        storage.close()


def _sleep_and_work(operations: Operations) -> int:
    """Sleep until there may be work, then complete what one claim brings."""
    drive(operations.wait_for_work([QUEUE], NAP))
    claimed = drive(operations.claim([QUEUE], worker="bench", limit=CLAIM, policy=pgjq.LeasePolicy()))
    drive(operations.settle([Settlement(job.lease, Completed()) for job in claimed]))
    return len(claimed)
