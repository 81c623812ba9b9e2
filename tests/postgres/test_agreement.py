"""PostgreSQL and memory agree: random operations on both, at the same moments, must have the same answers.

Memory is the model: one lock, plain Python. Whatever sequence of operations tells the two apart is a bug in one of
them, and Hypothesis shrinks it to the shortest one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pgjq import (
    JobError,
    JobStatus,
    LeasePolicy,
    MemoryStorage,
    NewJob,
    PolicyError,
    PostgresStorage,
    QueueNotFoundError,
)
from pgjq.blocking import drive
from pgjq.definition import Definition, check_changes, define
from pgjq.options import JobFilter, Submission
from pgjq.options import settings as resolve
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.policy import POLICIES, Policy
from pgjq.storage.base import Claimed, Settlement
from pgjq.testing import ManualClock, PostgresClock
from tests.conftest import CLEAN

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUES = ["one", "two"]
ids = st.sampled_from(["a", "b", "c", "d"])
queues = st.sampled_from(QUEUES)
outcomes = st.one_of(
    st.builds(Completed, st.sampled_from([None, b"", b"1"])),
    st.builds(Failed, st.just(JobError("E", "boom"))),
    st.builds(Failing, st.just(JobError("E", "again")), st.sampled_from([0.0, 5.0])),
    st.builds(Snoozed, st.sampled_from([0.0, 5.0])),
    st.just(Released()),
    st.just(Cancelled()),
)
policies = st.builds(
    LeasePolicy,
    lease=st.sampled_from([None, 10.0, 30.0]),
    heartbeat=st.just(5.0),
    expire=st.sampled_from([None, 20.0, 900.0]),
    max_stalled=st.sampled_from([None, 0, 1]),
    reap_exhausted=st.sampled_from(["fail", "requeue"]),
)
plain: dict[str, Any] = {
    "priority": st.integers(-2, 2),
    "delay": st.sampled_from([0, 5, 60]),
    "result_ttl": st.sampled_from([1, 30, 1000]),
    "max_attempts": st.integers(1, 3),
    "on_failed": st.sampled_from(["enqueue", "duplicate"]),
    "retry_delay": st.sampled_from([0, 7]),
    "heartbeat_seconds": st.just(15),
    "expire_in_seconds": st.sampled_from([12, 100]),
    "retention_seconds": st.just(40),
    "delete_after_seconds": st.sampled_from([0, 50]),
    "singleton_key": st.sampled_from(["k", "l"]),
}
plain_options = st.fixed_dictionaries({}, optional=plain)
options = st.fixed_dictionaries({}, optional=plain | {"singleton_seconds": st.just(60)})
definitions = st.fixed_dictionaries(
    {},
    optional={
        "retry_limit": st.integers(0, 2),
        "retry_delay": st.sampled_from([0, 3]),
        "heartbeat_seconds": st.just(11),
        "expire_in_seconds": st.sampled_from([8, 50]),
        "retention_seconds": st.just(35),
        "delete_after_seconds": st.sampled_from([0, 45]),
        "dead_letter": st.just("one"),
    },
)


class Agreement(RuleBasedStateMachine):
    """Do the same to a storage, `pg`, and to memory; compare every answer, and everything that can be seen."""

    pg: Any
    mem: Any

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Claimed, Claimed]] = []

    def both(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Do the same to both, and compare the answers, which may be refusals."""
        ours, model = (outcome(getattr(ops, method), *args, **kwargs) for ops in (self.pg, self.mem))
        assert ours == model
        return model

    @rule(queue=queues, jobs=st.lists(st.tuples(ids, plain_options), min_size=1, max_size=4))
    def enqueue(self, queue: str, jobs: list[tuple[str, dict[str, Any]]]) -> None:
        batch = [Submission(i, f"{n}".encode(), resolve(NewJob(i, None, **o))) for n, (i, o) in enumerate(jobs)]
        self.both("enqueue", queue, batch)

    @rule(wanted=st.permutations(QUEUES), limit=st.integers(1, 3), policy=policies)
    def claim(self, wanted: list[str], limit: int, policy: LeasePolicy) -> None:
        ours = drive(self.pg.claim(wanted, worker="ann", limit=limit, policy=policy))
        model = drive(self.mem.claim(wanted, worker="ann", limit=limit, policy=policy))
        assert [comparable(job) for job in ours] == [comparable(job) for job in model]
        self.held += zip(ours, model, strict=True)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=outcomes)
    def settle(self, data: st.DataObject, outcome: Any) -> None:
        ours, model = data.draw(st.sampled_from(self.held))
        (settled,) = drive(self.pg.settle([Settlement(ours.lease, outcome)]))
        (expected,) = drive(self.mem.settle([Settlement(model.lease, outcome)]))
        assert settled.state == expected.state

    @precondition(lambda self: self.held)
    @rule()
    def heartbeat(self) -> None:
        ours = drive(self.pg.heartbeat([job.lease for job, _ in self.held]))
        model = drive(self.mem.heartbeat([job.lease for _, job in self.held]))
        for answer, expected in ((ours.lost, model.lost), (ours.cancel_requested, model.cancel_requested)):
            assert [(named(x.id), x.number) for x in answer] == [(named(x.id), x.number) for x in expected]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=st.sampled_from([b"1", b"2"]))
    def save_checkpoint(self, data: st.DataObject, value: bytes) -> None:
        ours, model = data.draw(st.sampled_from(self.held))
        assert drive(self.pg.save_checkpoint(ours.lease, value)) == drive(self.mem.save_checkpoint(model.lease, value))

    @rule(limit=st.integers(1, 3), stale_age=st.sampled_from([0.0, 5.0]))
    def reap(self, limit: int, stale_age: float) -> None:
        ours = drive(self.pg.reap(limit=limit, stale_age=stale_age))
        model = drive(self.mem.reap(limit=limit, stale_age=stale_age))
        assert [dataclasses.replace(r, id=named(r.id)) for r in ours] == [
            dataclasses.replace(r, id=named(r.id)) for r in model
        ]

    @rule(queue=queues, job_id=ids, active=st.booleans())
    def cancel(self, *, queue: str, job_id: str, active: bool) -> None:
        self.both("cancel", queue, job_id, active=active)

    @rule(queue=queues, job_id=ids)
    def retry(self, queue: str, job_id: str) -> None:
        ours, model = (outcome(ops.retry, queue, job_id) for ops in (self.pg, self.mem))
        assert getattr(ours, "state", ours) == getattr(model, "state", model)

    @rule(queue=queues, job_id=ids)
    def delete(self, queue: str, job_id: str) -> None:
        self.both("delete", queue, [job_id])

    @rule(seconds=st.sampled_from([1, 5, 10, 31, 1000]))
    def advance(self, seconds: float) -> None:
        self.moved.advance(seconds)
        self.clock.advance(seconds)

    @rule()
    def prune(self) -> None:
        self.both("prune")

    @invariant()
    def everything_looks_the_same(self) -> None:
        if not hasattr(self, "mem"):
            return
        for queue in QUEUES:
            ours = drive(self.pg.stats(queue))
            model = drive(self.mem.stats(queue))
            assert ours == dataclasses.replace(model, oldest_ready_age=ours.oldest_ready_age)
            assert ours.oldest_ready_age == pytest.approx(model.oldest_ready_age)
        ours, _ = drive(self.pg.find(JobFilter()))
        model, _ = drive(self.mem.find(JobFilter()))
        assert [nameless(status) for status in ours] == [nameless(status) for status in model]
        assert drive(self.pg.next_deadline()) == pytest.approx(drive(self.mem.next_deadline()))


class PostgresAgreement(Agreement):
    """On PostgreSQL, with definitions: one queue is standard, the other has any policy."""

    conninfo: ClassVar[str]
    postgres: ClassVar[PostgresStorage]

    @initialize(policy=st.sampled_from(POLICIES), options=definitions)
    def start_empty(self, policy: Policy, options: dict[str, Any]) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(CLEAN)
        self.moved = PostgresClock(self.conninfo)
        self.clock = ManualClock()
        self.memory = MemoryStorage(clock=self.clock)
        # Workers are numbered once by an adapter; an empty database has forgotten their numbers.
        self.pg: Any = self.postgres.operations("blocking")
        self.pg._worker_ids.clear()
        self.mem: Any = self.memory.operations("blocking")
        self.strict = policy == "key_strict_fifo"
        self.both("create_queue", "one", Definition())
        self.both("create_queue", "two", define("two", policy=policy, partition=False, options=options))

    @rule(queue=queues, jobs=st.lists(st.tuples(ids, options), min_size=1, max_size=4))
    def enqueue(self, queue: str, jobs: list[tuple[str, dict[str, Any]]]) -> None:
        keyed = {"singleton_key": "m"} if self.strict and len(jobs) > 1 else {}
        batch = [Submission(i, f"{n}".encode(), resolve(NewJob(i, None, **keyed | o))) for n, (i, o) in enumerate(jobs)]
        self.both("enqueue", queue, batch)

    @rule(queue=queues, chosen=st.lists(ids, unique=True), many=st.sampled_from(["retry_many", "cancel_many"]))
    def many(self, queue: str, chosen: list[str], many: str) -> None:
        self.both(many, queue, chosen)

    @rule(queue=queues, paused=st.booleans())
    def pause(self, *, queue: str, paused: bool) -> None:
        self.both("pause", queue, paused=paused)

    @rule()
    def redrive(self) -> None:
        self.both("redrive", "one", limit=2)

    @rule(changes=definitions)
    def update_queue(self, changes: dict[str, Any]) -> None:
        self.both("update_queue", "two", check_changes("two", changes))

    @rule()
    def blocked_keys(self) -> None:
        self.both("blocked_keys", "two")


def comparable(job: Claimed) -> Claimed:
    """Leave out the storage's own name for the job, and the id that a dead letter was given."""
    return job._replace(lease=job.lease._replace(key=None, id=named(job.lease.id)))


def named(job_id: str) -> str:
    """Ids that are made for dead letters are not the same."""
    return job_id if len(job_id) == 1 else "a letter"


def nameless(status: JobStatus) -> JobStatus:
    """Leave out the id that a dead letter was given."""
    return status if status.source is None else dataclasses.replace(status, id=named(status.id))


def outcome(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """An answer, or the kind of a refusal."""
    try:
        return drive(method(*args, **kwargs))
    except (PolicyError, QueueNotFoundError) as error:
        return type(error)


def test_postgres_and_memory_agree(database: str, postgres: PostgresStorage) -> None:
    PostgresAgreement.conninfo, PostgresAgreement.postgres = database, postgres
    run_state_machine_as_test(
        PostgresAgreement,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
