"""The processes of a soak: workers, a producer of mixed jobs and a caller. Run as a module, this forks them.

Every job but those of the caller and of the schedule adds one to its worker's row of `tally`, in the transaction that
completes it: in the end the sum is the number of jobs that were acknowledged to the producer, or one was lost or
doubled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import psycopg

from pgjq import AsyncJob, AsyncQueue, Client, Job, LeasePolicy, NewJob, PostgresStorage, Queue, Retry, Worker
from tests.worker.worker_processes import main

POLICY = LeasePolicy(lease=3.0, heartbeat=1.0, reap_interval=1.0)
TALLY = "insert into tally (worker, jobs) values (%s, 1) on conflict (worker) do update set jobs = tally.jobs + 1"
KEEP = 2.0  # Seconds that records are kept, so that tables stop growing soon.
KEPT: dict[str, Any] = {"result_ttl": KEEP, "delete_after_seconds": KEEP, "max_attempts": 1000}
PACE = 0.05
FAIL_EVERY = 7
SCHEDULED = "scheduled"


def serve(name: str, conninfo: str, directory: str) -> None:
    """Be a process until SIGTERM; its role is the first part of its name."""
    logging.basicConfig(filename=Path(directory) / f"{name}.log", level=logging.ERROR)
    storage = PostgresStorage(conninfo)
    match name.partition("-")[0]:
        case "worker":
            work(storage, name)
        case "async_worker":
            asyncio.run(work_async(storage, name))
        case "producer":
            produce(Client(storage), Path(directory) / name)
        case "caller":
            call(Client(storage), Path(directory) / name)
    storage.close()


def work(storage: PostgresStorage, name: str) -> None:
    """Serve all queues with plain functions and tasks."""

    def run(job: Job) -> None:
        if job.payload == "fail" and job.attempts == 1:
            raise Retry(delay=0.2)
        if job.payload == SCHEDULED:
            return
        with job.transaction() as connection:
            connection.execute(TALLY, [name])

    mixed, keyed, echo = (Queue(queue, storage=storage, lease_policy=POLICY) for queue in ("mixed", "keyed", "echo"))
    mixed.execute(run)
    keyed.execute(run)
    echo.execute(lambda job: job.payload)
    Worker(mixed, keyed, echo, concurrency=4, grace=5.0).run()


async def work_async(storage: PostgresStorage, name: str) -> None:
    """Serve all queues with coroutines."""

    async def run(job: AsyncJob) -> None:
        if job.payload == "fail" and job.attempts == 1:
            raise Retry(delay=0.2)
        if job.payload == SCHEDULED:
            return
        async with job.transaction() as connection:
            await connection.execute(TALLY, [name])

    async def answer(job: AsyncJob) -> Any:
        await asyncio.sleep(0)
        return job.payload

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    queues = [AsyncQueue(q, storage=storage, concurrency=4, lease_policy=POLICY) for q in ("mixed", "keyed", "echo")]
    for queue in queues:
        queue.execute(answer if queue.name == "echo" else run)
        await queue.start()
    await stopped.wait()
    await asyncio.gather(*(queue.stop() for queue in queues))
    await storage.operations("async").close()


def produce(client: Client, counted: Path) -> None:
    """Enqueue plain, delayed, failing, keyed and bulk jobs; write down how many were acknowledged."""
    ended, number, acknowledged = _until_terminated(), 0, 0
    while not ended.wait(PACE):
        number += 1
        jobs = [NewJob(None, n, **KEPT) for n in range(5)]
        jobs.append(NewJob(None, "later", delay=0.3, **KEPT))
        jobs.append(NewJob(None, "fail" if number % FAIL_EVERY == 0 else "fine", priority=5, **KEPT))
        acknowledged += len(client.enqueue_many("mixed", jobs))
        client.enqueue("keyed", None, number, singleton_key=str(number % 10), **KEPT)
        acknowledged += 1
    counted.write_text(str(acknowledged))
    client.close()


def call(client: Client, counted: Path) -> None:
    """Ask for answers, one after the other; write down how many were right, and how many were not."""
    ended, right, wrong = _until_terminated(), 0, 0
    while not ended.wait(PACE):
        asked = [os.getpid(), right]
        if client.enqueue_and_wait("echo", None, asked, timeout=30.0, **KEPT) == asked:
            right += 1
        else:
            wrong += 1
    counted.write_text(f"{right} {wrong}")
    client.close()


def _until_terminated() -> threading.Event:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    return ended


def prepare(conninfo: str) -> None:
    """Create the table, the queues and a schedule."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("create table tally (worker text primary key, jobs bigint not null)")
    with Client(PostgresStorage(conninfo)) as client:
        client.create_queue("mixed", delete_after_seconds=KEEP)
        client.create_queue("keyed", policy="singleton", delete_after_seconds=KEEP)
        client.create_schedule("every second", "mixed", SCHEDULED, every=1.0, **KEPT)


if __name__ == "__main__":
    main(serve)
