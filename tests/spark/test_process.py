"""What a task of `pgjq.spark.process` does, without Spark: it is a worker until its queue is drained."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.lease import LeasePolicy
from pgjq.spark import process
from pgjq.spark.options import read_options
from pgjq.spark.process import Assignment, drain
from tests.spark.finished_jobs import ask, do

if TYPE_CHECKING:
    from collections.abc import Callable

LEASES = LeasePolicy(lease=1.0, heartbeat=0.2, reap_interval=0.2)


def assignment(url: str, func: Callable[..., Any], timeout: float | None = 60, **policy: Any) -> Assignment:
    return Assignment(
        read_options({"url": url}), "heavy", func, 1, LeasePolicy(**policy) if policy else LEASES, timeout
    )


def test_a_job_that_outlasts_its_lease_keeps_it(postgres: pgjq.PostgresStorage, database: str) -> None:
    def outlast(job: pgjq.Job) -> str:
        """Run until the lease that the job was claimed with would have lapsed, by the database's clock."""
        ends = ask(database, "select locked_until from pgjq.job")[0][0]
        while not ask(database, "select clock_timestamp() > %s", ends)[0][0]:
            time.sleep(0.05)
        return job.id

    pgjq.Client(postgres).enqueue("heavy", "long", 1)
    assert drain(assignment(database, outlast))["completed"] == 1
    assert ask(database, "select attempts, stalled, state from pgjq.jobs") == [(1, 0, "completed")]


def test_a_lease_that_was_lost_settles_nothing(postgres: pgjq.PostgresStorage, database: str) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("heavy", "one", 1)

    def lose(job: pgjq.Job) -> str:
        """Have the job taken away during its first attempt, as a reaper does with a worker that is thought dead."""
        if job.attempts == 1:
            do(database, "update pgjq.job set locked_until = pgjq.now() - interval '1 h'")
            do(database, "select pgjq.reap(10, 0)")
        return f"attempt {job.attempts}"

    drain(assignment(database, lose, lease=30.0, heartbeat=10.0, reap_interval=30.0))
    status = client.get_status("heavy", "one")
    assert status is not None
    assert (status.state, status.stalled, client.get_result("heavy", "one")) == ("completed", 1, "attempt 2")


def test_what_is_not_due_is_left(postgres: pgjq.PostgresStorage, database: str) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("heavy", "later", 1, delay=3600)
    assert set(drain(assignment(database, lambda _: None, timeout=None)).values()) == {0}
    client.enqueue("heavy", "paused", 1)
    client.pause_queue("heavy")
    assert set(drain(assignment(database, lambda _: None, timeout=None)).values()) == {0}
    client.resume_queue("heavy")
    told = drain(assignment(database, lambda _: 1 / 0, timeout=None))
    assert told == {"completed": 0, "failing": 2, "failed": 1, "cancelled": 0}


def test_what_cannot_be_done_is_said_before_spark_begins(database: str, empty_database: str) -> None:
    unused: Any = None  # A session that is never asked for anything.
    with pytest.raises(pgjq.SchemaError, match="pgjq migrate"):
        process(unused, "heavy", print, url=empty_database)
    with pytest.raises(pgjq.ValidationError, match="concurrency must be between 1 and 1000"):
        process(unused, "heavy", print, url=database, concurrency=0)
    with pytest.raises(pgjq.ValidationError, match="tasks must be between 1"):
        process(unused, "heavy", print, url=database, tasks=0)
    with pytest.raises(pgjq.ValidationError, match="tasks is missing: a session of Spark Connect"):
        process(unused, "heavy", print, url=database)  # Like such a session, it has no attribute sparkContext.
    with pytest.raises(pgjq.ValidationError, match="option url is not"):
        process(unused, "heavy", print, url="postgres//nowhere")
