"""Write jobs: every task fills its own stage, and the driver's commit makes jobs of all.

* A task fails: its stage goes with its transaction, and Spark tries again.
* A task is tried twice and both succeed: each has a stage, and only the one that Spark names at the end becomes jobs.
  The other is dropped with it. The stage of a try that finishes long after is removed by maintenance.
* The write fails: `abort` drops the stages, also of tasks that never reported, and no job was made. The driver dies:
  the maintenance of reapers drops the stages after three days.
* The commit's reply is lost: the driver asks again, and the ledger says whether it was made.
* The write is repeated with the same `writeId`, or a stream repeats a batch: the ledger has it, nothing happens.
* A stream starts anew, with a new checkpoint and its old `queryId`: the ledger has its batch numbers as written. It is
  refused, because its data would be lost silently.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pgjq.errors import StorageError, StorageUnavailableError, ValidationError
from pgjq.spark.commit import Write, make_jobs
from pgjq.spark.job_rows import check_frame
from pgjq.spark.quarantine import fill_with_quarantine
from pgjq.spark.staging import fill_stage
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options

log = logging.getLogger("pgjq.spark")
TRIES: Final = 3


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The stage of a task, its write, and how many of its rows become jobs. None is a job yet."""

    write: str
    stage: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: jobs added, jobs that existed before, rows in quarantine."""

    write_id: str
    queue: str
    jobs: int
    duplicates: int
    quarantined: int
    at: datetime


class _Enqueueing:
    """Common part of the batch writer and the stream writer."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if options.queue is None:
            raise ValidationError('option queue is missing: .option("queue", "mail")')
        if overwrite:
            raise ValidationError("jobs are added and never replaced: use mode('append')")
        check_frame(schema)
        self._options = options
        self._queue = options.queue
        self._write = uuid4().hex  # Identifies the stages of this write.

    def _stage(self, iterator: Iterator[Any]) -> Staged:
        fill = fill_with_quarantine if self._options.on_bad_row == "quarantine" else fill_stage
        return Staged(self._write, *fill(self._options, self._write, iterator))

    def _commit(self, messages: Sequence[WriterCommitMessage | None], write_id: str, batch: int) -> None:
        """Make the jobs, or find that they were made; ask again if the reply was lost."""
        done = [message for message in messages if isinstance(message, Staged)]
        if len(done) < len(messages):
            raise StorageError("a task did not report its stage; nothing was enqueued")
        stages = [message.stage for message in done if message.stage is not None]
        expected = sum(message.rows for message in done)
        jobs, duplicates, before = self._make_jobs(Write(self._queue, stages, expected, write_id, batch))
        # Spark runs this in a process without log handlers, where only warnings are shown.
        log.log(
            logging.WARNING if duplicates or before else logging.INFO,
            "%s jobs were added to queue %s and %s were there already (write %s%s)",
            *(jobs, self._queue, duplicates, write_id, ", made before and not again" if before else ""),
        )
        if quarantined := self._options.on_bad_row == "quarantine" and self._count_quarantined(write_id, batch):
            log.warning("%s rows are in pgjq.quarantine: they cannot be jobs (write %s)", quarantined, write_id)

    def _count_quarantined(self, write_id: str, batch: int) -> int:
        written = read_written(self._options, write_id, batch)
        return 0 if written is None else written.quarantined

    def _make_jobs(self, write: Write) -> tuple[int, int, bool]:
        for left in reversed(range(TRIES)):
            try:
                return make_jobs(self._options, write)
            except StorageUnavailableError:
                if not left:
                    raise
        raise AssertionError

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        writes = {message.write for message in messages if isinstance(message, Staged)}
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            here.fetch("drop_stages", {"writes": sorted({self._write, *writes})})
            here.fetch("remove_orphan_bodies", {"queue": self._queue})


class JobsWriter(_Enqueueing, DataSourceArrowWriter):
    """Writes a data frame. Created once, in the driver; sent to every task and to the commit."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._write_id = options.write_id or uuid4().hex
        # Before any task starts: an unusable database is an error now, and a repeated write does no work.
        self._made = read_written(options, self._write_id) is not None

    def write(self, iterator: Iterator[Any]) -> Staged:
        return Staged(self._write, None, 0) if self._made else self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._write_id, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Enqueueing, DataSourceStreamArrowWriter):
    """Writes a stream. Spark creates one for tasks and one for the commit; messages carry state."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        if options.query_id is None:
            raise ValidationError(
                "option queryId is missing: a name of this stream's own, which stays the same when it is started again"
            )
        self._query_id = options.query_id

    def write(self, iterator: Iterator[Any]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._commit(messages, self._query_id, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._abort(messages)


def read_written(options: Options, write_id: str, batch: int = 0) -> Written | None:
    """Read a write from the ledger."""
    with oneshot_connection(options.conninfo, options.schema) as here:
        found = here.fetch("bulk_write", {"write_id": write_id, "batch": batch})
    return Written(*found[0]) if found else None
