"""Spark as a worker: one worker per task, each in an executor, until the queue is drained.

A task is a normal worker: it claims under leases, renews them on a thread, settles in batches, and reaps stalled jobs.
So Spark has to remember nothing. A task that fails releases its jobs or loses their leases, and Spark tries it again;
the leases of an executor that dies expire, and another worker, or the task's next try, runs those jobs again. A task
that Spark starts twice is only one more worker.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.errors import ValidationError
from pgjq.lease import LeasePolicy
from pgjq.options import check_int, check_queue, check_seconds
from pgjq.queue import Queue
from pgjq.spark.lazy_imports import pa
from pgjq.spark.options import read_options
from pgjq.storage.postgres.oneshot import oneshot_connection
from pgjq.storage.postgres.storage import PostgresStorage
from pgjq.worker.handler import style_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from pgjq.job import JobEventName

LOOK: Final = 0.5  # Seconds between two checks whether the queue is drained.


@dataclass(frozen=True, slots=True)
class Processed:
    """Number of runs by outcome, as reported by the tasks that ended normally."""

    completed: int = 0
    failing: int = 0
    failed: int = 0
    cancelled: int = 0


OUTCOMES: Final = cast("tuple[JobEventName, ...]", tuple(field.name for field in fields(Processed)))


@dataclass(frozen=True, slots=True)
class Assignment:
    """The data that every task gets."""

    options: Any
    queue: str
    func: Callable[..., Any]
    concurrency: int
    policy: LeasePolicy
    timeout: float | None


def process(
    spark: SparkSession,
    queue: str,
    func: Callable[..., Any],
    *,
    url: str | None = None,
    schema: str = "pgjq",
    tasks: int | None = None,
    concurrency: int = 1,
    lease_policy: LeasePolicy | None = None,
    timeout: float | timedelta | None = None,
) -> Processed:
    """Run the jobs of a queue on Spark's executors; return when none is due or running.

    `func` is a handler as for `Queue.execute`: it gets a `Job` and returns its result; its exceptions follow the job's
    retry policy. Spark sends it to the executors with everything it refers to. There are `tasks` workers, by default as
    many as Spark runs at once, with `concurrency` jobs at a time each. Delayed jobs, and retries that are not due, are
    left. After `timeout` seconds the tasks stop as workers do: they stop claiming, and release jobs that do not finish
    within the grace period.
    """
    style_of(func)
    assignment = Assignment(
        options=read_options({"schema": schema} | ({} if url is None else {"url": url})),
        queue=check_queue(queue),
        func=func,
        concurrency=check_int("concurrency", concurrency, 1, 1000),
        policy=lease_policy or LeasePolicy(),
        timeout=None if timeout is None else check_seconds("timeout", timeout, above=0),
    )
    return _process(spark, assignment, schema, tasks)


def _process(spark: SparkSession, assignment: Assignment, schema: str, tasks: int | None) -> Processed:
    with oneshot_connection(assignment.options.conninfo, schema):
        pass  # An unusable database is one error here, and not one per task.
    count = _tasks_at_once(spark) if tasks is None else check_int("tasks", tasks, 1)
    slots: Any = spark.range(0, count, 1, count)
    told: list[dict[str, int]] = [
        row.asDict() for row in slots.mapInArrow(partial(_work, assignment), _columns()).collect()
    ]
    return Processed(**{name: sum(row[name] for row in told) for name in OUTCOMES})


def _tasks_at_once(spark: SparkSession) -> int:
    try:
        return spark.sparkContext.defaultParallelism
    except AttributeError as error:
        raise ValidationError(
            "tasks is missing: a session of Spark Connect does not say how many run at once"
        ) from error


def _columns() -> str:
    return ", ".join(f"{name} long" for name in OUTCOMES)


def _work(assignment: Assignment, batches: Iterator[Any]) -> Iterator[Any]:
    """Run one worker, inside a task."""
    for _ in batches:
        pass
    counts = asdict(Processed(**drain(assignment)))
    yield pa.RecordBatch.from_pydict({name: pa.array([counts[name]], pa.int64()) for name in OUTCOMES})


def drain(assignment: Assignment) -> dict[str, int]:
    """Run jobs until there are none, or until the timeout; count their outcomes."""
    options = assignment.options
    storage = PostgresStorage(options.conninfo, schema=options.schema)
    queue = Queue(assignment.queue, storage=storage, concurrency=assignment.concurrency, lease_policy=assignment.policy)
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def count(event: Any) -> None:
        with lock:
            counts[event.name] += 1

    for name in OUTCOMES:
        queue.on(name, count)
    queue.execute(assignment.func)
    try:
        with queue:
            _wait_until_drained(assignment)
    finally:
        storage.close()
    return {name: counts[name] for name in OUTCOMES}


def _wait_until_drained(assignment: Assignment) -> None:
    until = None if assignment.timeout is None else time.monotonic() + assignment.timeout
    with oneshot_connection(assignment.options.conninfo, assignment.options.schema) as here:
        while until is None or time.monotonic() < until:
            if not here.fetch("has_work", {"queue": assignment.queue})[0][0]:
                return
            time.sleep(LOOK)
