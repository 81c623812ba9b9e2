"""Test Django tasks: run what was enqueued, in the test's thread and in its transaction.

`drain()` works in `TestCase`, where everything happens in the transaction of the test, and in `TransactionTestCase`.
The helpers of `pgjq.testing` take the queue that `queue()` returns.
"""

# pyright: basic

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from django.db import connections

from pgjq import testing
from pgjq.django.storages import forget, storage_here, worker_storage
from pgjq.django.task_queue import DjangoQueue
from pgjq.django.tasks_framework import task_backends

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pgjq.django.backend import PgjqBackend


def queue(name: str = "default", *, backend: str = "default") -> DjangoQueue:
    """Return a queue on this thread's Django connection, for `capture` and the asserts.

    A task is compared by its path: `assert_enqueued(queue(), task="shop.tasks.receipt", args=[7])`.
    """
    found = _backend(backend)
    return DjangoQueue(found, name, storage_here(found.settings))


def drain(*names: str, backend: str = "default", until: datetime | timedelta | None = None) -> int:
    """Run the tasks of some or all queues until nothing is due; return how many ran.

    `until` moves a movable clock, as in `pgjq.testing.drain`.
    """
    found = _backend(backend)
    ran = 0
    while (now := sum(_drain(found, name, until) for name in names or sorted(found.queues))) > 0:
        ran += now
    return ran


def forget_jobs(*, backend: str = "default") -> None:
    """Delete the jobs of a backend in memory, which no rollback of a `TestCase` undoes."""
    forget(_backend(backend).settings)


def _drain(backend: PgjqBackend, name: str, until: Any) -> int:
    own = backend.settings
    if own.storage is not None:
        return testing.drain(DjangoQueue(backend, name, storage_here(own)), until=until)
    with closing(worker_storage(own)) as storage:
        connection = connections[own.database]
        inside = connection if connection.in_atomic_block else None
        return testing.drain(DjangoQueue(backend, name, storage), until=until, connection=inside)


def _backend(alias: str) -> PgjqBackend:
    return task_backends[alias]
