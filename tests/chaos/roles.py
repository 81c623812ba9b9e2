"""The processes of the fleet: what each does until it is ended. Run as a module, this is the parent that forks them.

A process writes what the audit needs into files of its own, with one `write` for each line, so that a kill loses
nothing that was acknowledged: `NAME.acknowledged` (producers), `NAME.answers` (callers), `NAME.log` (log lines) and
`NAME.stderr`, which stays empty unless an exception was caught nowhere or a background thread died.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import inspect
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgjq import (
    AsyncClient,
    AsyncJob,
    AsyncQueue,
    Client,
    Job,
    LeaderElection,
    LeasePolicy,
    NewJob,
    PgjqError,
    Queue,
    Reaper,
    StorageError,
    Worker,
)
from pgjq.background import health
from pgjq.storage.file import replica
from tests.chaos.servers import MANY
from tests.chaos.spaces import ELECTION, open_space, own_space
from tests.worker.worker_processes import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

POLICY = LeasePolicy(lease=2.0, heartbeat=0.5, reap_interval=0.5)
ELECTED = LeaderElection(enabled=True, lock_ttl=3.0, renewal_interval=0.5, acquire_retry_interval=0.2)
GRACE = 1.0
BLOCK_SECONDS = 120.0  # Longer than every probe waits: polling must not hide a missed notification.
POOLED_BLOCK_SECONDS = 1.0  # Behind a transaction pooler there are no notifications.
CALL_SECONDS = 5.0
PACE_SECONDS = 0.1
KEYS = 3
JOURNAL_BYTES = 50_000  # So that processes write the journal of a FileStorage anew under way.
LASTING = {"max_attempts": 30_000, "result_ttl": 7 * 86_400}
EFFECT = "insert into effect (id, lease) values (%s, %s)"
BEGIN_KEYED = "insert into keyed (key, number, lease) values (%s, %s, %s) returning position"
END_KEYED = "update keyed set ended = clock_timestamp() where position = %s"


def work(job: Job) -> None:
    with job.transaction() as connection:
        connection.execute(EFFECT, [job.id, job.lease])
        job.result = job.lease


async def work_async(job: AsyncJob) -> None:
    async with job.transaction() as connection:
        await connection.execute(EFFECT, [job.id, job.lease])
        job.result = job.lease


def work_keyed(job: Job) -> None:
    with job.transaction() as connection:
        (position,) = connection.execute(BEGIN_KEYED, [*job.payload, job.lease]).fetchone()
        connection.execute(END_KEYED, [position])
        job.result = job.lease


async def work_keyed_async(job: AsyncJob) -> None:
    async with job.transaction() as connection:
        (position,) = await (await connection.execute(BEGIN_KEYED, [*job.payload, job.lease])).fetchone()
        await connection.execute(END_KEYED, [position])
        job.result = job.lease


def count(job: Job) -> int:
    time.sleep(0.002)
    return job.lease


async def count_async(job: AsyncJob) -> int:
    await asyncio.sleep(0.002)
    return job.lease


def echo(job: Job) -> Any:
    return job.payload


async def echo_async(job: AsyncJob) -> Any:
    await asyncio.sleep(0)
    return job.payload


def handlers(storage: Storage, name: str, *, is_async: bool) -> dict[str, Callable[..., Any]]:
    """Return what a worker does with the jobs of each queue; the last one is its own, for probes."""
    plain = count_async if is_async else count
    in_transaction, keyed = (work_async, work_keyed_async) if is_async else (work, work_keyed)
    has_transactions = storage.capabilities.transactions
    served: dict[str, Callable[..., Any]] = {"work": in_transaction if has_transactions else plain}
    if storage.capabilities.definitions:
        served["keyed"] = keyed if has_transactions else plain
    answer = echo_async if is_async else echo
    return served | {"echo": answer, f"probe-{name}": answer}


class Process:
    """One process of the fleet: its name, its storage and its files."""

    def __init__(self, name: str, address: str, directory: str) -> None:
        self.name = name
        self.address = address
        self.is_async = name.endswith(("2", "4"))
        self._directory = Path(directory)
        replica.LEAST = JOURNAL_BYTES
        self.ticks = 0
        self.retries = 0
        stderr = os.open(self._directory / f"{name}.stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stderr, sys.stderr.fileno())
        form = f"%(asctime)s {os.getpid()} %(threadName)s %(levelname)s %(message)s"
        logging.basicConfig(filename=self._directory / f"{name}.log", level=logging.WARNING, format=form)
        faulthandler.register(signal.SIGUSR1, (self._directory / f"{name}.stacks").open("a"), all_threads=True)
        threading.Thread(target=self._watch, args=[os.getppid()], name="chaos watch", daemon=True).start()

    def record(self, kind: str, line: str) -> None:
        """Append a line to one of this process's files."""
        path = self._directory / f"{self.name}.{kind}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def work(self) -> None:
        """Serve every queue until SIGTERM."""
        storage = open_space(self.address)
        served = handlers(storage, self.name, is_async=self.is_async)
        patience = POOLED_BLOCK_SECONDS if "pooled" in self.name else BLOCK_SECONDS
        make = AsyncQueue if self.is_async else Queue
        queues = [
            make(name, storage=storage, concurrency=4, lease_policy=POLICY, block_timeout=patience, grace=GRACE)
            for name in served
        ]
        for queue in queues:
            queue.execute(served[queue.name])
        if self.is_async:
            asyncio.run(_serve_async(queues))
        else:
            self._serve(Worker(*queues, concurrency=4, grace=GRACE, processes=2 if self.name == MANY else 1))
        storage.close()

    def _serve(self, worker: Worker) -> None:
        try:
            worker.run()
        except PgjqError as error:
            if self.name != MANY:
                raise
            self.record("log", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {error}")  # Its supervisor was killed.

    def reap(self) -> None:
        """Reap in a space of its own, and run for leader in another one against other reapers, until SIGTERM."""
        own, shared = open_space(self.address, own_space(self.name)), open_space(self.address, ELECTION)
        alone = LeaderElection() if self.is_async else ELECTED
        with Reaper(storage=own, lease_policy=POLICY, leader_election=alone):
            Reaper(storage=shared, lease_policy=POLICY, leader_election=ELECTED).run()
        own.close()
        shared.close()

    async def produce(self) -> None:
        """Enqueue jobs, and record the ids of those that were acknowledged."""
        storage = open_space(self.address)
        client = AsyncClient(storage) if self.is_async else Client(storage)
        prefix = f"{self.name}-{os.getpid()}"
        number = 0
        while True:
            jobs = [NewJob(f"{prefix}-{number}-{n}", None, **LASTING) for n in range(3)]
            await self._acknowledged("work", client.enqueue_many, "work", jobs)
            if storage.capabilities.definitions:
                key, turn = f"{prefix}-{number % KEYS}", number // KEYS
                # The next number of a key is enqueued when this one is known to be there: that is the order to keep.
                keyed = functools.partial(client.enqueue, "keyed", f"{key}-{turn}", [key, turn], singleton_key=key)
                while not await self._acknowledged("keyed", keyed, **LASTING):
                    self.retries += 1
            number += 1
            await asyncio.sleep(PACE_SECONDS)

    async def call(self) -> None:
        """Ask for answers; record whether each was right, and how long it took."""
        storage = open_space(self.address)
        client = AsyncClient(storage) if self.is_async else Client(storage)
        number = 0
        while True:
            number += 1
            asked, began = [self.name, os.getpid(), number], self.ticks
            try:
                answer = await _result(client.enqueue_and_wait("echo", None, asked, timeout=CALL_SECONDS))
                outcome = "right" if answer == asked else f"wrong: {answer!r} instead of {asked!r}"
            except PgjqError as error:
                outcome = f"error: {type(error).__name__}"
            self.record("answers", f"{time.strftime('%H:%M:%S')} {(self.ticks - began) / 10:.1f} {outcome}")
            await asyncio.sleep(PACE_SECONDS)

    async def _acknowledged(self, queue: str, enqueue: Callable[..., Any], *args: Any, **options: Any) -> bool:
        """Enqueue, and record the answer; say whether there was one."""
        try:
            answer = await _result(enqueue(*args, **options))
        except StorageError:
            await asyncio.sleep(PACE_SECONDS)
            return False
        for result in answer if queue == "work" else [answer]:
            self.record("acknowledged", f"{queue} {result.id}")
        return True

    def _watch(self, parent: int) -> None:
        """Count time while this process runs, report background threads that died, end with the parent process."""
        dead: dict[str, int] = {}
        while os.getppid() == parent:
            time.sleep(0.1)
            self.ticks += 1
            dead = {found.name: dead.get(found.name, 0) + 1 for found in health() if not found.alive}
            for name, ticks in dead.items():
                if ticks == 30:
                    print(f"background thread {name!r} is not alive", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(1)


async def _serve_async(queues: list[Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    for queue in queues:
        await queue.start()
    await stopped.wait()
    await asyncio.gather(*(queue.stop() for queue in queues))
    await queues[0].storage.operations("async").close()


async def _result(answer: Any) -> Any:
    """Await the answer of an async client; a blocking one has given it already."""
    return await answer if inspect.isawaitable(answer) else answer


def serve(name: str, address: str, directory: str) -> None:
    """Be a process of the fleet; its role is the first part of its name."""
    process = Process(name, address, directory)
    match name.partition("-")[0]:
        case "worker":
            process.work()
        case "reaper":
            process.reap()
        case "producer":
            asyncio.run(process.produce())
        case "caller":
            asyncio.run(process.call())
        case role:
            raise ValueError(role)


if __name__ == "__main__":
    main(serve)
