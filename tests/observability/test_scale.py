"""The slots that a queue needs, alone and in simulations of a fleet that follows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.generic_metrics import reader_of
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.testing.clock import PostgresClock
from tests.cli.run_command import answer, complaint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TARGET = 60.0
STEP = 30.0


@pytest.fixture
def storage(database: str) -> Iterator[pgjq.PostgresStorage]:
    made = pgjq.PostgresStorage(database)
    yield made
    made.close()


def scale(database: str, queue: str = "mail", target: float = TARGET) -> int:
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("select pgjq.scale(%s, %s)", (queue, target)).fetchone()
    assert row is not None
    return row[0]


class Fleet:
    """Workers with as many slots as the last answer, on a moved clock: every job takes `seconds`."""

    def __init__(self, storage: Any, clock: PostgresClock, seconds: float) -> None:
        self._ops = storage.operations("sync")
        self._clock = clock
        self._seconds = seconds

    def run(self, slots: int, span: float) -> int:
        """Run what so many slots run in a span of time, and return how many jobs ended."""
        rounds = int(span // self._seconds)
        ended = 0
        for _ in range(rounds):
            jobs: list[Any] = []
            if slots:
                policy = LeasePolicy(lease=3600)
                jobs = drive(self._ops.claim(["mail"], worker="w", limit=slots, policy=policy, claim_id=1))
            self._clock.advance(seconds=self._seconds)
            drive(self._ops.settle([Settlement(job.lease, Completed(b"1")) for job in jobs]))
            ended += len(jobs)
        return ended


def test_nothing_to_do_needs_nothing_and_little_to_do_one(database: str, storage: pgjq.PostgresStorage) -> None:
    clock = PostgresClock(database)
    assert scale(database, "unknown") == 0
    queue = pgjq.Queue("mail", storage=storage)
    queue.enqueue("later", 1, delay=3600)
    assert scale(database) == 0
    queue.enqueue_many([(f"{n}", n) for n in range(500)])
    assert scale(database) == 1  # Nothing is known of run times yet.
    fleet = Fleet(storage, clock, seconds=10.0)
    assert fleet.run(20, 10.0) == 20
    assert scale(database) == math.ceil(480 * 10 / TARGET)
    assert scale(database, target=1e9) == 1
    clock.advance(hours=2)  # The run times of the last day count if there are no newer ones.
    assert scale(database) == math.ceil(481 * 10 / TARGET)
    clock.advance(days=2)
    assert scale(database) == 1
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="target_seconds must be above 0"):
        scale(database, target=0)


def test_a_running_job_keeps_one_slot(database: str, storage: pgjq.PostgresStorage) -> None:
    pgjq.Queue("mail", storage=storage).enqueue("a", 1)
    ops = storage.operations("sync")
    (job,) = drive(ops.claim(["mail"], worker="w", limit=1, policy=LeasePolicy(), claim_id=1))
    assert scale(database) == 1
    drive(ops.settle([Settlement(job.lease, Completed(b"1"))]))
    assert scale(database) == 0


@pytest.mark.parametrize(
    ("arrivals", "most"),
    [
        (lambda _step: 30, 10),  # steady
        (lambda step: 300 if step == 4 else 0, 60),  # a burst out of nothing
        (lambda step: 5 * step, 25),  # growing
        (lambda step: 60 if step % 6 < 3 else 0, 25),  # waves
    ],
    ids=["steady", "burst", "growing", "waves"],
)
def test_a_fleet_that_follows_keeps_the_target_and_ends_at_zero(
    database: str, storage: pgjq.PostgresStorage, arrivals: Callable[[int], int], most: int
) -> None:
    clock = PostgresClock(database)
    queue = pgjq.Queue("mail", storage=storage)
    fleet = Fleet(storage, clock, seconds=10.0)
    queue.enqueue("first", 1)
    assert fleet.run(1, 10.0) == 1
    oldest: list[float] = []
    slots: list[int] = []
    for step in range(18):
        queue.enqueue_many([(f"{step}-{n}", n) for n in range(arrivals(step) if step < 12 else 0)])
        slots.append(scale(database))
        fleet.run(max(slots[-2:]), STEP)  # Scaled down when the answer was lower for the target time.
        oldest.append(pgjq.Client(storage).get_queue_stats("mail").oldest_ready_age or 0.0)
    assert max(oldest) <= TARGET
    assert 1 < max(slots) <= most
    assert slots[-1] == 0
    assert oldest[-1] == 0


def test_the_command_answers_on_every_storage(database: str, storage: pgjq.PostgresStorage) -> None:
    pgjq.Queue("mail", storage=storage).enqueue("a", 1)
    assert answer("scale", "mail", "--target", "1m", url=database) == {"queue": "mail", "target": 60.0, "slots": 1}
    assert "target" in complaint("scale", "mail", "--target", "0", url=database, code=2)
    memory = pgjq.MemoryStorage()
    queue = pgjq.Queue("mail", storage=memory, concurrency=2)
    queue.execute(lambda job: job.payload)
    assert drive(reader_of(memory).scale("mail", 60.0)) == 0
    queue.enqueue_many([pgjq.NewJob(f"old{n}", n, delay=3600) for n in range(1100)])  # More than one page.
    with queue:
        queue.enqueue_and_wait("a", 1)
    queue.enqueue_many([(f"b{n}", n) for n in range(9)])
    assert drive(reader_of(memory).scale("mail", 60.0)) == 1
    assert drive(reader_of(memory).scale("mail", 1e-9)) > 1
