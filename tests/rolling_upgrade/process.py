"""A worker or a producer of whatever version of pgjq is on the path, until SIGTERM.

A worker notes each job's id and its own version in the transaction that completes the job. A producer prints the ids
that were acknowledged to it.
"""

from __future__ import annotations

import signal
import sys
import threading

import pgjq
from pgjq.storage.postgres.schema_version import SCHEMA_VERSION

POLICY = pgjq.LeasePolicy(lease=5.0, heartbeat=1.0, reap_interval=1.0)


def work(storage: pgjq.Storage) -> None:
    queue = pgjq.Queue("upgraded", storage=storage, concurrency=4, lease_policy=POLICY)

    @queue.execute
    def run(job: pgjq.Job) -> None:
        with job.transaction() as connection:
            connection.execute("insert into effect (id, version) values (%s, %s)", [job.id, SCHEMA_VERSION])

    queue.run()


def produce(storage: pgjq.Storage, name: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    client, number = pgjq.Client(storage), 0
    while not ended.wait(0.01):
        number += 1
        client.enqueue("upgraded", f"{name}-{number}", number)
        client.enqueue_many("upgraded", [(f"{name}-{number}-{n}", n) for n in range(3)])
    print(number)  # noqa: T201
    client.close()


if __name__ == "__main__":
    role, name, conninfo = sys.argv[1:]
    shared = pgjq.PostgresStorage(conninfo)
    work(shared) if role == "worker" else produce(shared, name)
    shared.close()
