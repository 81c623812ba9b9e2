"""Batch reads of ended jobs, all jobs, or the queues.

Planning a query cuts the jobs into ranges of their numbers, one per partition. History is a snapshot of that moment:
each ending names its transaction, and every task leaves out those not visible then, however late and however often it
runs. Of `jobs`, each task sees its own moment; a job is in one range only, so it is read once, in one state.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import IntegerType, LongType, StringType, TimestampType

from pgjq.spark.arrow import arrow_schema, read_batches
from pgjq.spark.lazy_imports import pa
from pgjq.spark.packing import WORD_OF
from pgjq.storage.postgres.bulk_select import Condition, Operator, write_select
from pgjq.storage.postgres.oneshot import oneshot_connection
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options

ROWS_PER_PARTITION: Final = 250_000
MOST_PARTITIONS: Final = 64


@dataclass(frozen=True)
class Span(InputPartition):
    """The job numbers that a task reads (end exclusive), and the visible transactions."""

    first: int
    last: int
    xmin: int
    xmax: int
    running: list[int] = field(default_factory=list[int])
    since: int = 0
    restored: bool = True


NOTHING: Final = Span(0, 0, 0, 0, restored=False)


class JobsReader(DataSourceReader):
    """Reads history, or jobs."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions = conditions_of(options)

    def partitions(self) -> list[InputPartition]:
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            *seen, first_ended, last_ended, first_job, last_job = here.fetch("job_range")[0]
        first, last = (first_ended, last_ended) if self._options.view == "history" else (first_job, last_job)
        if first is None:
            return [NOTHING]  # Spark would read an empty list as one partition of None.
        return [Span(*span, *seen) for span in split(first, last + 1, self._options.partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_span(self._options, self._schema, partition, self._conditions)


class FilteringReader(JobsReader):
    """A JobsReader that pushes filters down to PostgreSQL.

    Spark refuses such a reader where `spark.sql.python.filterPushdown.enabled` is off, as it is by default, so it is a
    separate, optional class. Each query must load anew: Spark 4.3 keeps the filters of the first plan with the frame
    that `load()` returned, also for a second plan that has none to push.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        for given in filters:
            condition = as_condition(given, self._schema)
            if condition is None:
                yield given
            else:
                self._conditions.append(condition)


class QueuesReader(DataSourceReader):
    """Reads the queues: their definitions, with effective values, and their current job counts."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002  (there is only one)

        from pgjq.client import Client
        from pgjq.storage.postgres.storage import PostgresStorage

        with Client(PostgresStorage(self._options.conninfo, schema=self._options.schema)) as client:
            queues = [q for q in client.get_queues() if self._options.queue in (None, q.name)]
            rows = [asdict(q) | asdict(client.get_queue_stats(q.name)) | {"queue": q.name} for q in queues]
        wanted = self._schema.fieldNames()
        rows = [{name: row[name] for name in wanted} for row in rows]
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._schema))


def conditions_of(options: Options) -> list[Condition]:
    """Return the conditions that the options ask for."""
    return [] if options.queue is None else [Condition("queue", "=", options.queue)]


def read_span(
    options: Options, schema: StructType, span: InputPartition, conditions: Sequence[Condition]
) -> Iterator[Any]:
    """Read the jobs of a span, in batches."""
    assert isinstance(span, Span)  # noqa: S101  (Spark hands back what it was given)
    queries, columns, names = Queries(options.schema), schema.fieldNames(), None
    if options.view == "history":
        columns = list(dict.fromkeys(WORD_OF.get(column, column) for column in columns))
        names = queries.written("number_names", {})
    statement = write_select(queries, options.view, asdict(span), columns, conditions)
    return read_batches(options.conninfo, statement, schema, names)


def split(first: int, last: int, wanted: int | None, rows: int | None = None) -> list[tuple[int, int]]:
    """Cut the numbers from `first` to before `last` into ranges of about equal length."""
    size = last - first
    count = min(size, wanted or min(MOST_PARTITIONS, -(-(rows or size) // ROWS_PER_PARTITION)))
    bounds = [first + size * n // count for n in range(count + 1)]
    return list(pairwise(bounds))


_COMPARISONS: Final[dict[type[Filter], Operator]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}
# The order of texts depends on the collation, and PostgreSQL's need not be Spark's.
_ORDERED: Final = (IntegerType, LongType, TimestampType)
_COMPARABLE: Final = (*_ORDERED, StringType)
_TEXTS: Final = ("payload", "result")


def as_condition(given: Filter, schema: StructType) -> Condition | None:
    """Convert a Spark filter to SQL, if it means the same there."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if len(path) != 1 or path[0] not in schema.fieldNames():
        return None
    (column,) = path
    if isinstance(given, IsNull):
        return Condition(column, "is null")
    if isinstance(given, IsNotNull):
        return Condition(column, "is not null")
    operator = _COMPARISONS.get(type(given))
    kinds = _COMPARABLE if operator in ("=", "in") else _ORDERED
    if operator is None or column in _TEXTS or not isinstance(schema[column].dataType, kinds):
        return None
    value: Any = getattr(given, "value", None)
    wanted: list[Any] = list(value) if operator == "in" else [value]
    if any(isinstance(one, str) and "\0" in one for one in wanted):
        return None  # PostgreSQL has no such text.
    return Condition(column, operator, wanted if operator == "in" else value)
