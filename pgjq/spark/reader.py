"""Batch reads of ended jobs, all jobs, or the queues.

Planning a query cuts the jobs into ranges of their numbers, one per partition, with about as many rows in each. History
is a snapshot of that moment: each ending names its transaction, and every task leaves out those not visible then,
however late and however often it runs. Of `jobs`, each task sees its own moment; a job is in one range only, so it is
read once, in one state.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgjq.spark.arrow import arrow_schema, read_batches
from pgjq.spark.columns import NUMBERED
from pgjq.spark.lazy_imports import pa
from pgjq.storage.policy_errors import no_queue
from pgjq.storage.postgres.oneshot import oneshot_connection
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.queries_with_literals import Condition, write_select

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from pgjq.spark.options import Options

ROWS_PER_PARTITION: Final = 250_000
MOST_PARTITIONS: Final = 64
SAMPLED_PAGES: Final = 2_000  # A larger table is cut by what this many of its pages hold.


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
        params = {"alive": self._options.view == "jobs", "queue": self._options.queue}
        with oneshot_connection(self._options.conninfo, self._options.schema) as here:
            *seen, first, last, pages, has_queue = here.fetch("job_range", params)[0]
            check_queue_exists(self._options, has_queue=has_queue)
            if first is None:
                return [NOTHING]  # Spark would read an empty list as one partition of None.
            params |= parts_of(self._options) | {"percent": min(100.0, 100.0 * SAMPLED_PAGES / max(pages, 1))}
            ((cuts,),) = here.fetch("job_split_points", params)
        return [Span(*span, *seen) for span in split(first, last + 1, cuts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_span(self._options, self._schema, partition, self._conditions)


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
            check_queue_exists(self._options, has_queue=bool(queues))
            rows = [asdict(q) | asdict(client.get_queue_stats(q.name)) | {"queue": q.name} for q in queues]
        wanted = self._schema.fieldNames()
        rows = [{name: row[name] for name in wanted} for row in rows]
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._schema))


def conditions_of(options: Options) -> list[Condition]:
    """Return the conditions that the options ask for."""
    given = (
        Condition("queue", "=", options.queue),
        Condition("state", "in", None if options.states is None else list(options.states)),
        Condition("task", "=", options.task),
        Condition("finished_at", ">=", options.finished_after),
        Condition("finished_at", "<", options.finished_before),
        Condition("created_at", ">=", options.created_after),
        Condition("created_at", "<", options.created_before),
        Condition("at", ">=", options.event_after),
        Condition("at", "<", options.event_before),
    )
    return [condition for condition in given if condition.value is not None]


def check_queue_exists(options: Options, *, has_queue: bool) -> None:
    """Raise an error if the options name an unknown queue, which would look like an empty one."""
    if options.queue is not None and not has_queue:
        raise no_queue(options.queue)


def parts_of(options: Options) -> dict[str, int | None]:
    """Return into how many parts to cut the rows: the wanted number, or one per so many rows."""
    return {"wanted": options.partitions, "most": MOST_PARTITIONS, "per_part": ROWS_PER_PARTITION}


def read_span(
    options: Options, schema: StructType, span: InputPartition, conditions: Sequence[Condition]
) -> Iterator[Any]:
    """Read the jobs of a span, in batches."""
    assert isinstance(span, Span)  # noqa: S101  (Spark hands back what it was given)
    queries, columns, names = Queries(options.schema), schema.fieldNames(), None
    if options.view == "history":
        columns = [NUMBERED.get(column, column) for column in columns]
        names = queries.written("names_of_numbers", {})
    statement = write_select(queries, options.view, asdict(span), columns, conditions)
    return read_batches(options.conninfo, statement, schema, names)


def split(first: int, last: int, cuts: Sequence[int] | None) -> list[tuple[int, int]]:
    """Cut the numbers from `first` to before `last` at these; no range is empty."""
    inner = {cut for cut in cuts or () if first < cut < last}
    return list(pairwise([first, *sorted(inner), last]))
