"""Whatever passes validation breaks no later statement, on any storage."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import Client, FileStorage, LeasePolicy, MemoryStorage, PostgresStorage, RedisStorage, ValidationError
from pgjq.blocking import drive
from pgjq.definition import check_changes
from pgjq.job import JobError, NewJob
from pgjq.job_settings import settings
from pgjq.options import JobFilter
from pgjq.outcome import Failing
from pgjq.retry import retry_delay
from pgjq.storage.base import Settlement
from pgjq.testing import ManualClock, PostgresClock, RedisClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.storage.base import Storage
    from pgjq.testing import Clock

EDGES = (0, 5e-324, 1e-320, 1e-50, 1e-7, 1e-6, 0.5, 1, 10, 3155760000, 3155760001, 3.2e9, 1e18, 1.7e308, -1e-9, 10**400)
some_seconds = st.one_of(st.sampled_from(EDGES), st.floats())
some_times = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
)
some_numbers = st.one_of(st.sampled_from([-32768, -32767, 0, 1, 2, 32766, 32767, 32768]), st.integers())
SETTINGS = {
    "heartbeat_seconds": some_seconds,
    "expire_in_seconds": some_seconds,
    "retention_seconds": some_seconds,
    "delete_after_seconds": some_seconds,
    "retry_delay": some_seconds,
    "retry_delay_max": some_seconds,
    "retry_backoff": st.booleans(),
}
JOB = SETTINGS | {
    "result_ttl": some_seconds,
    "priority": some_numbers,
    "max_attempts": some_numbers,
    "run_at": some_times,
    "delay": some_seconds,
    "singleton_seconds": some_seconds,
    "debounce": some_seconds,
}
POLICY = {
    "lease": some_seconds,
    "heartbeat": some_seconds,
    "expire": some_seconds,
    "max_stalled": some_numbers,
    "stale_age": some_seconds,
}
QUESTIONS = [path.read_text() for path in sorted((Path(__file__).parents[2] / "sql" / "monitoring").glob("*.sql"))]
NUMBERS = count()


@pytest.fixture(params=["memory", "file", "postgres", "redis"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Storage, Clock]]:
    """A storage, and its clock."""
    clock = ManualClock()
    match request.param:
        case "memory":
            yield MemoryStorage(clock=clock), clock
        case "file":
            storage = FileStorage(tmp_path / "jobs", clock=clock)
            yield storage, clock
            storage.close()
        case "postgres":
            database = request.getfixturevalue("database")
            clock = PostgresClock(database)
            storage = PostgresStorage(database)
            yield storage, clock
            storage.close()
        case _:
            storage = request.getfixturevalue("redis_storage")
            assert isinstance(storage, RedisStorage)
            yield storage, RedisClock(storage)


def accepted(strategies: dict[str, Any], make: Any) -> Any:
    """Draw settings, one by one, and keep those that pass validation together with what was kept before."""

    @st.composite
    def draw_accepted(draw: st.DrawFn) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name in draw(st.sets(st.sampled_from(sorted(strategies)))):
            value = draw(strategies[name])
            try:
                make(kept | {name: value})
            except ValidationError:
                continue
            kept[name] = value
        return kept

    return draw_accepted()


def check_job(given: dict[str, Any]) -> Any:
    return settings(NewJob(None, 1, **given))


def check_definition(given: dict[str, Any]) -> Any:
    return check_changes("q", given)


jobs = accepted(JOB, check_job)
definitions = accepted(SETTINGS | {"retry_limit": some_numbers}, check_definition)
policies = accepted(POLICY, lambda given: LeasePolicy(**{"heartbeat": None} | given))


@example({"delete_after_seconds": 1e-50, "retry_delay": 5e-324}, {}, {}, 0.5)
@example({"run_at": datetime.max.replace(tzinfo=UTC), "retention_seconds": 1e18}, {}, {}, 0.5)
@example({}, {"delete_after_seconds": 1e-50, "retention_seconds": 1e18}, {"lease": 5e-324}, 0.5)
@running(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(jobs, definitions, policies, st.floats(0, 1, exclude_max=True))
def test_whatever_passes_validation_breaks_no_later_statement(
    timed: tuple[Storage, Clock],
    job: dict[str, Any],
    definition: dict[str, Any],
    policy: dict[str, Any],
    chance: float,
) -> None:
    storage, clock = timed
    client, ops, queue = Client(storage), storage.operations("sync"), f"q{next(NUMBERS)}"
    if not storage.capabilities.definitions:  # Then it has no time slots either.
        job = {name: value for name, value in job.items() if name not in ("singleton_seconds", "debounce")}
    lease = LeasePolicy(**{"heartbeat": None} | policy)
    if storage.capabilities.definitions:
        client.create_queue(queue, **definition)
    client.enqueue(queue, "a", 1, **job)
    client.enqueue_many(queue, [NewJob("b", 1, **job), NewJob("c", 1)])
    client.enqueue_many(queue, [NewJob(None, n) for n in range(100)])
    for worker in ("first", "second"):
        taken = drive(ops.claim([queue], worker=worker, limit=50, policy=lease))
        drive(ops.heartbeat([run.lease for run in taken]))
        drive(
            ops.settle(
                [
                    Settlement(run.lease, Failing(JobError("E", "", None), retry_delay(run.options, n + 1, chance)))
                    for n, run in enumerate(taken[:30])
                ]
            )
        )
        look(storage, client, queue)
        clock.advance(20)
        drive(ops.reap(stale_age=lease.stale_age))
        drive(ops.prune())
        look(storage, client, queue)
    clock.advance(0.000001)
    if storage.capabilities.definitions:
        client.delete_queue(queue)
        assert queue not in {info.name for info in client.get_queues()}


def look(storage: Storage, client: Client, queue: str) -> None:
    """Read everything that there is to read."""
    ops = storage.operations("sync")
    drive(ops.next_deadline())
    drive(ops.wait_for_work([queue], 0.0))
    known = client.get_statuses(queue, ["a", "b", "c"])
    found, _ = drive(ops.find(JobFilter(queue=queue, limit=1000)))
    assert {job.id for job in found} >= known.keys()
    client.get_queue_stats(queue)
    if storage.capabilities.definitions:
        drive(ops.observe())
        client.get_queues()
    if isinstance(storage, PostgresStorage):
        with psycopg.connect(storage.conninfo, autocommit=True) as connection:
            for question in QUESTIONS:
                connection.execute(question.encode()).fetchall()
