"""Endings or recorded state changes as a stream: each once, in any order of commits.

Every row has the number of its transaction. An offset is such a number, and a batch is the rows of all transactions
from one number to before another. A batch ends at the oldest open transaction: nothing before it can appear any more.
So a long transaction delays the stream and never loses a row.

* A transaction stays open: the stream waits for it, and names it in the log and in the query's progress. Every
  transaction that has written something counts, in any database of the server.
* A limit would cut a transaction in two: the batch ends before it; if it is the first one, it is taken whole.
* The checkpoint is of another server, or of a timeline that this server left before it, or the rows were restored from
  another server's dump: such transaction numbers cannot be compared, so the stream refuses to continue (`offsets`).
* A job leaves history before it was read, because it was retried by hand or pruned: that ending is not in the stream.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pgjq.errors import StorageError, ValidationError
from pgjq.spark.offsets import Offset, Server, make_offset, read_offset
from pgjq.spark.reader import NOTHING, Span, check_queue_exists, conditions_of, parts_of, read_span, split
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options
    from pgjq.storage.postgres.oneshot import OneShotConnection

log = logging.getLogger("pgjq.spark")
_TABLES: Final = {"history": "done", "events": "job_event"}
LONG: Final = 10.0  # Seconds that a transaction may be open before it is reported.


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows of a view from its offset to the oldest open transaction."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.view not in ("history", "events"):
            raise ValidationError(f"a stream reads history or events, not {options.view}, whose rows change")
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._waits_for: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's names, here and below)
        with self._connected() as here:
            return make_offset(here, self._options.view, self._find_limits(here), 0, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._options.max_rows is None else ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._connected() as here:
            self._target = self._find_limits(here).until

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with self._connected() as here:
            server = self._find_limits(here)
            since = read_offset(here, self._options.view, server, start)
            until = max(since, server.until if self._target is None else min(server.until, self._target))
            end = self._batch_end(here, since, until, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            return start if end is None else make_offset(here, self._options.view, server, since, end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        with self._connected() as here:
            server = self._find_limits(here)
        offset = {"sys": server.identifier, "tli": server.timeline, "xid": str(server.newest)}
        return offset if self._waits_for is None else offset | {"waits_for": self._waits_for}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        with self._connected() as here:
            server = self._find_limits(here)
            since, until = (read_offset(here, self._options.view, server, offset) for offset in (start, end))
            first, last, cuts = here.fetch("stream_range", self._between(since, until) | parts_of(self._options))[0]
        if first is None:
            return []
        return [Span(*span, until, until, since=since, restored=False) for span in split(first, last + 1, cuts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_span(self._options, self._schema, partition, conditions_of(self._options))

    def _between(self, since: int, until: int) -> dict[str, Any]:
        return {"view": self._options.view, "since": since, "until": until, "queue": self._options.queue}

    def _connected(self) -> AbstractContextManager[OneShotConnection]:
        return oneshot_connection(self._options.conninfo, self._options.schema)

    def _find_limits(self, here: OneShotConnection) -> Server:
        """Return the server and a batch's end; report an open transaction that holds it back."""
        view, params = self._options.view, {"view": self._options.view, "queue": self._options.queue}
        *told, restored, has_queue, are_events_recorded = here.fetch("stream_snapshot", params)[0]
        server = Server(*told)
        check_queue_exists(self._options, has_queue=has_queue)
        if view == "events" and not are_events_recorded:
            raise StorageError(
                f"state changes are not recorded: run `select {self._options.schema}.record_events(true)` as the"
                " schema's owner"
            )
        if restored:
            raise StorageError(
                "this database was restored from another server's dump, whose transaction numbers mean nothing here: "
                f"set xid to 0 in all rows of the table {_TABLES[view]}, and start the stream with a new checkpoint"
            )
        found = here.fetch("oldest_transaction") if server.until < server.newest else []
        self._tell(_describe(*found[0]) if found else None)
        return server

    def _tell(self, holder: str | None) -> None:
        if holder is not None and self._waits_for is None:
            log.warning("the stream of %s waits for an open transaction: %s", self._options.view, holder)
        self._waits_for = holder

    def _batch_end(self, here: OneShotConnection, since: int, until: int, limit: int | None) -> int | None:
        """Return the end of the next batch; the same as before if nothing has happened."""
        params = self._between(since, until)
        if not here.fetch("stream_has_rows", params)[0][0]:
            return None
        found = [] if limit is None else here.fetch("stream_stop", params | {"limit": limit})
        return found[0][0] if found else until


class SpanReader(DataSourceReader):
    """Reads what a stream reads between two of its offsets, in one go."""

    def __init__(self, options: Options, schema: StructType, start: Offset, end: Offset) -> None:
        self._stream = StreamReader(options, schema)
        self._ends = (start, end)

    def partitions(self) -> Sequence[InputPartition]:
        return self._stream.partitions(*self._ends) or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._stream.read(partition)


def _describe(holder: str, database: str | None, seconds: float | None) -> str | None:
    """Describe a transaction that has been open for long, or whose age this login may not see."""
    if seconds is not None and seconds < LONG:
        return None
    age = "for a time that this role may not see" if seconds is None else f"for {seconds:.0f} s"
    return f"{holder} in database {database}, open {age}"
