"""Endings as a stream: each ended job once, whatever the order of commits.

Every ending has the number of its transaction. An offset is such a number, and a batch is the endings of all
transactions from one number to before another. A batch ends at the oldest open transaction: nothing before it can
appear any more. So a long transaction delays the stream and never loses a row.

* A transaction stays open: the stream waits for it, and names it in the log and in the query's progress. Every
  transaction that has written something counts, in any database of the server.
* A limit would cut a transaction in two: the batch ends before it; if it is the first one, it is taken whole.
* The checkpoint is of another server, or the rows were restored from another server's dump: transaction numbers of
  different servers cannot be compared, so the stream refuses to continue.
* A job leaves history before it was read, because it was retried by hand or pruned: that ending is not in the stream.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pgjq.errors import StorageError, ValidationError
from pgjq.spark.reader import Span, conditions_of, read_span, split
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options

Offset = dict[str, Any]

log = logging.getLogger("pgjq.spark")
LONG: Final = 10.0  # Seconds that a transaction may be open before it is reported.


class EndingsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads endings from its offset to the oldest open transaction."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.view != "history":
            raise ValidationError(f"a stream reads history, not {options.view}: what has ended does not change again")
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._server = ""
        self._waits_for: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's names, here and below)
        self._look()
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._options.max_rows is None else ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target, _ = self._look()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        until, _ = self._look()
        since = self._number(start)
        until = max(since, until if self._target is None else min(until, self._target))
        return self._offset(self._cut(since, until, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        _, newest = self._look()
        offset = self._offset(newest)
        return offset if self._waits_for is None else offset | {"waits_for": self._waits_for}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        since, until = self._number(start), self._number(end)
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            params = {"since": since, "until": until, "queue": self._options.queue}
            first, last, rows = here.fetch("endings_range", params)[0]
        if first is None:
            return []
        spans = split(first, last + 1, self._options.partitions, rows)
        return [Span(*span, until, until, since=since, restored=False) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_span(self._options, self._schema, partition, conditions_of(self._options))

    def _look(self) -> tuple[int, int]:
        """Return how far a batch may go, and the newest transaction; report an open one in between."""
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            self._server, until, newest, restored = here.fetch("endings_snapshot")[0]
            found = here.fetch("oldest_transaction") if until < newest else []
        if restored:
            message = (
                "this database was restored from another server's dump, whose transaction numbers mean nothing here: "
                "run `update pgjq.done set xid = 0`, and start the stream with a new checkpoint"
            )
            raise StorageError(message)
        self._tell(_describe(*found[0]) if found else None)
        return until, newest

    def _tell(self, holder: str | None) -> None:
        if holder is not None and self._waits_for is None:
            log.warning("the stream of endings waits for an open transaction: %s", holder)
        self._waits_for = holder

    def _cut(self, since: int, until: int, limit: int | None) -> int:
        """Return the end of the next batch: `since` if nothing ended, as an empty batch is work, too."""
        params = {"since": since, "until": until, "queue": self._options.queue}
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            if not here.fetch("has_endings", params)[0][0]:
                return since
            found = [] if limit is None else here.fetch("endings_stop", params | {"limit": limit})
        return found[0][0] if found else until

    def _offset(self, number: int) -> Offset:
        return {"sys": self._server, "xid": str(number)}

    def _number(self, offset: Offset) -> int:
        """Return the number of an offset of this server."""
        if not self._server:
            self._look()
        if offset.get("sys") != self._server:
            message = (
                f"this checkpoint is of another PostgreSQL server ({offset.get('sys')}, and this is {self._server}): "
                "transactions are numbered by each server for itself; start the stream with a new checkpoint"
            )
            raise StorageError(message)
        return int(offset["xid"])


def _describe(holder: str, database: str | None, seconds: float | None) -> str | None:
    """Describe a transaction that has been open for long, or whose age this login may not see."""
    if seconds is not None and seconds < LONG:
        return None
    age = "for a time that this role may not see" if seconds is None else f"for {seconds:.0f} s"
    return f"{holder} in database {database}, open {age}"
