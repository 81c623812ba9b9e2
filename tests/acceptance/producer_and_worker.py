"""Two programs: a worker that does what a payload says, and a producer that prints the results.

`python -m tests.acceptance.producer_and_worker work URL` serves the queue `orders` until a signal comes. `… produce
URL` reads calls from its standard input, one a line, and prints what each returned or raised, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import pgjq
from pgjq import Client, Job, LeasePolicy, Queue, open_storage

POLICY = LeasePolicy(lease=1.0, heartbeat=0.25, reap_interval=0.1)


def handle(job: Job) -> Any:
    match job.payload:
        case {"return": value}:
            return value
        case {"big": size}:
            return "x" * size
        case {"fail": times} if job.attempts <= times:
            raise ValueError(f"attempt {job.attempts} went wrong")
        case {"hang": lock} if job.attempts == 1:
            with job_lock(lock):
                return "not before the lock is free"
        case _:
            return {"attempts": job.attempts, "payload": job.payload}


def job_lock(number: int) -> Any:
    """Wait for the advisory lock of another session."""
    import psycopg

    connection = psycopg.connect(sys.argv[2])
    connection.execute("select pg_advisory_xact_lock(%s)", [number])
    return connection


def work(url: str) -> None:
    queue = Queue("orders", storage=open_storage(url), concurrency=2, lease_policy=POLICY, block_timeout=0.5)
    queue.execute(handle)
    queue.run()


def produce(url: str) -> None:
    with Client(open_storage(url)) as client:
        for line in sys.stdin:
            method, arguments, options = json.loads(line)
            try:
                told = {"returned": plain(getattr(client, method)(*arguments, **options))}
            except pgjq.PgjqError as error:
                told = {"raised": [type(error).__name__, str(error)]}
            print(json.dumps(told), flush=True)  # noqa: T201


def plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        return json.loads(json.dumps(dataclasses.asdict(value), default=str))  # type: ignore[call-overload]
    return value


if __name__ == "__main__":
    {"work": work, "produce": produce}[sys.argv[1]](sys.argv[2])
