"""Names of workers stay in the database for as long as a job or its history mentions them, and are pruned then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from pgjq.testing.clock import PostgresClock
from tests.postgres.conftest import execute

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86400
FOR_EVER = pgjq.LeasePolicy(lease=None, heartbeat=None, expire=None)


@pytest.fixture
def clock(postgres: pgjq.PostgresStorage) -> Iterator[PostgresClock]:
    """A clock that the test moves."""
    clock = PostgresClock(postgres.conninfo)
    yield clock
    clock.restore()


def names(storage: pgjq.PostgresStorage) -> list[str]:
    """Prune, and list the names that are left."""
    drive(storage.operations("sync").prune())
    return [name for (name,) in execute(storage.conninfo, "select name from pgjq.worker order by name")]


def test_a_name_is_pruned_once_nothing_mentions_it(postgres: pgjq.PostgresStorage, clock: PostgresClock) -> None:
    client, ops = pgjq.Client(postgres), postgres.operations("sync")
    client.enqueue("q", "kept", 1, delete_after_seconds=20 * DAY)
    (job,) = drive(ops.claim(["q"], worker="history", limit=1, policy=FOR_EVER))
    drive(ops.settle([Settlement(job.lease, Completed(None))]))
    client.enqueue("q", "running", 1)
    drive(ops.claim(["q"], worker="running", limit=1, policy=FOR_EVER))
    for n, worker in enumerate(("alive", "stopped", "killed")):
        drive(ops.worker_seen(Registration(str(n), worker, ("q",), 10.0)))
    drive(ops.worker_stopped(Registration("1", "stopped", ("q",), 10.0)))
    assert names(postgres) == ["alive", "history", "killed", "running", "stopped"]
    clock.advance(9 * DAY)
    drive(ops.worker_seen(Registration("0", "alive", ("q",), 10.0)))
    assert names(postgres) == ["alive", "history", "running"]
    assert client.get_status("q", "kept").worker == "history"  # type: ignore[union-attr]
    clock.advance(12 * DAY)
    assert names(postgres) == ["running"]
    assert client.get_status("q", "running").worker == "running"  # type: ignore[union-attr]
