"""Round trip: enqueue a data frame's rows, wait, and return the results as a data frame.

The driver waits, and asks the database how many jobs are left; no executor is held meanwhile, so the jobs may run on
the same cluster (`pgjq.spark.process`). Ids that had a job before the write are waited for as well: the same call after
a crash continues where the first one was.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pgjq.errors import TimeoutError, ValidationError
from pgjq.options import check_queue, check_seconds
from pgjq.spark.arrow import arrow_schema
from pgjq.spark.columns import schema_of
from pgjq.spark.lazy_imports import pa
from pgjq.spark.options import read_options
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from datetime import timedelta

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options

    Progress = Callable[[int, int], object]

FIRST_NAP: Final = 0.1
LONGEST_NAP: Final = 5.0
COLUMNS: Final = ("id", "state", "result", "error", "attempts", "started_at", "finished_at")
_ENDED: Final = "coalesce(state in ('completed', 'failed', 'cancelled'), true)"


@dataclass(frozen=True, slots=True)
class _Wait:
    """What the driver waits for, and until when."""

    options: Options
    queue: str
    write_id: str
    seconds: float
    until: float


def enqueue_and_collect(
    frame: DataFrame,
    queue: str,
    *,
    timeout: float | timedelta,
    url: str | None = None,
    schema: str = "pgjq",
    write_id: str | None = None,
    cancel: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Enqueue a data frame as `write` does; wait for its jobs; return their results and errors.

    The result has one row for each id: `id, state, result, error, attempts, started_at, finished_at`, with `result` and
    `error` as JSON. It is cached; `unpersist` it when you are done. `progress` gets the numbers of jobs that have ended
    and of all; without it, a terminal shows a bar. If jobs have not ended after `timeout` seconds, it raises
    `pgjq.TimeoutError`, and the jobs continue, or with `cancel` are cancelled; likewise if the wait is interrupted.
    """
    seconds = check_seconds("timeout", timeout, above=0)
    given = {"schema": schema} | ({} if url is None else {"url": url})
    wait = _Wait(read_options(given), check_queue(queue), write_id or uuid4().hex, seconds, time.monotonic() + seconds)
    if "id" not in frame.columns:
        raise ValidationError("column 'id' is missing: a string")
    frame = frame.persist()  # Rows that are made anew, such as uuid(), would have other ids.
    try:
        frame.write.format("pgjq").options(**given, queue=wait.queue, writeId=wait.write_id).mode("append").save()
        with _shown(progress) as told:
            return _wait(wait, frame.select("id").distinct(), told, cancel=cancel)
    finally:
        frame.unpersist()


def _wait(wait: _Wait, ids: DataFrame, told: Progress, *, cancel: bool) -> DataFrame:
    try:
        _wait_for_write(wait, ids.count(), told)
        return _collect(wait, ids)
    except BaseException:
        if cancel:
            _cancel(wait, ids)
        raise


def _wait_for_write(wait: _Wait, total: int, told: Progress) -> None:
    """Wait until no job that the write has added is left."""
    nap = FIRST_NAP
    with oneshot_connection(wait.options.conninfo, wait.options.schema) as here:
        while True:
            asked = time.monotonic()
            left = here.fetch("unfinished_of_write", {"write_id": wait.write_id})[0][0]
            told(total - left, total)
            if not left:
                return
            # Counting many jobs takes a while: the server is to spend a tenth of its time on it at most.
            nap = min(max(nap * 1.5, 10 * (time.monotonic() - asked)), LONGEST_NAP)
            _nap(wait, nap, left)


def _nap(wait: _Wait, nap: float, left: int) -> None:
    remaining = wait.until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError(f"{left} jobs of queue {wait.queue} have not ended within {wait.seconds:g} s")
    time.sleep(min(nap, remaining))


def _collect(wait: _Wait, ids: DataFrame) -> DataFrame:
    """Read the results; wait for jobs of the same ids that were there before the write."""
    read = partial(_read, wait.options, wait.queue)
    while True:
        results = _map(ids, read, schema_of("history", COLUMNS)).persist()
        left = results.where(f"not {_ENDED}").count()
        if not left:
            return results
        results.unpersist()
        _nap(wait, LONGEST_NAP / 5, left)


def _cancel(wait: _Wait, ids: DataFrame) -> None:
    _map(ids, partial(_cancel_batch, wait.options, wait.queue), schema_of("history", ["id"])).count()


def _map(frame: Any, func: Callable[[Iterator[Any]], Iterator[Any]], schema: StructType) -> DataFrame:
    return frame.mapInArrow(func, schema)


def _read(options: Options, queue: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Read the jobs of some ids, inside a task."""
    schema = arrow_schema(schema_of("history", COLUMNS))
    with oneshot_connection(options.conninfo, options.schema) as here:
        for batch in batches:
            rows = here.fetch("collect", {"queue": queue, "ids": batch.column(0).to_pylist()})
            yield pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _cancel_batch(options: Options, queue: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Cancel the jobs of some ids, inside a task; running ones are asked to stop."""
    from pgjq.client import Client
    from pgjq.storage.postgres.storage import PostgresStorage

    with Client(PostgresStorage(options.conninfo, schema=options.schema)) as client:
        for batch in batches:
            for job_id in batch.column(0).to_pylist():
                client.cancel(queue, job_id, active=True)
            yield batch


def _ignore(ended: int, total: int) -> None:
    del ended, total


@contextmanager
def _shown(progress: Progress | None) -> Generator[Progress]:
    """Yield what to tell the progress to: the caller's function, or a bar on a terminal."""
    if progress is not None or not sys.stderr.isatty():
        yield progress or _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("jobs", total=None)
        yield lambda ended, total: bar.update(task, completed=ended, total=total)
