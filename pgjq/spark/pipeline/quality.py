"""What must hold of every ending before it counts. A violation stops the run, and nothing of the batch is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

SHOWN: Final = 20
# An ending is told from every other by the job's number and by when it ended: a job that was retried by hand has ended
# twice, at two points in time.
KEY: Final = ("seq", "finished_at")
_RULES: Final = (
    ("no end, or no queue: the row cannot be counted", "finished_at is null or queue is null or seq is null"),
    ("finished before it started", "finished_at < started_at"),
    ("started before it was created", "started_at < created_at"),
    ("finished before it was created", "finished_at < created_at"),
)
_FIELDS: Final = ("violation", "queue", "id", "seq", "state", "created_at", "started_at", "finished_at")


class QualityError(PgjqError):
    """Rows that cannot be true; `rows` holds the first of them, each with the rule that it breaks."""

    def __init__(self, count: int, rows: Sequence[dict[str, Any]]) -> None:
        first = rows[0]
        super().__init__(
            f"{count} rows of history cannot be true, and nothing of them was published; the first is job {first['id']!r}"
            f" of queue {first['queue']!r}: {first['violation']}"
        )
        self.count = count
        self.rows = list(rows)


def check(batch: DataFrame, before: DataFrame) -> None:
    """Raise a QualityError unless every ending of a batch is possible, and neither twice in it nor there before."""
    wrong = violations(batch, before)
    rows = [row.asDict() for row in wrong.orderBy("seq", "violation").limit(SHOWN).collect()]
    if rows:
        raise QualityError(wrong.count() if len(rows) == SHOWN else len(rows), rows)


def violations(batch: DataFrame, before: DataFrame) -> DataFrame:
    """Return the rows of a batch that break a rule, with the rule."""
    broken = F.array_compact(F.array(*(F.when(F.expr(rule), F.lit(name)) for name, rule in _RULES)))
    impossible = batch.withColumn("violation", F.explode(broken))
    again = batch.groupBy(*KEY).count().where("count > 1").drop("count")
    twice = batch.join(again, [*KEY]).withColumn("violation", F.lit("counted twice: the same ending came more than once"))
    known = batch.join(before.select(*KEY), [*KEY], "left_semi").withColumn(
        "violation", F.lit("counted twice: this ending is in the lake already")
    )
    return impossible.select(*_FIELDS).unionByName(twice.select(*_FIELDS)).unionByName(known.select(*_FIELDS))
