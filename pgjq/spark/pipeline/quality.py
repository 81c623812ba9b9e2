"""Quality rules for endings. A violation stops the run before its batch is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

SHOWN: Final = 20
# The job's number and the time of its end identify an ending: a job that was retried by hand has ended twice, at two
# points in time.
KEY: Final = ("seq", "finished_at")
_RULES: Final = (
    ("no end, or no queue: the row cannot be counted", "finished_at is null or queue is null or seq is null"),
    ("finished before it started", "finished_at < started_at"),
    ("started before it was created", "started_at < created_at"),
    ("finished before it was created", "finished_at < created_at"),
)
_FIELDS: Final = ("violation", "queue", "id", "seq", "state", "created_at", "started_at", "finished_at")


class QualityError(PgjqError):
    """Impossible rows; `rows` has the first of them, each with the rule that it violates."""

    def __init__(self, count: int, rows: Sequence[dict[str, Any]]) -> None:
        first = rows[0]
        super().__init__(
            f"{count} rows of history cannot be true, and nothing of their batch was published; the first is job"
            f" {first['id']!r} of queue {first['queue']!r}: {first['violation']}"
        )
        self.count = count
        self.rows = list(rows)


def check(batch: DataFrame, before: DataFrame | None) -> dict[str, int]:
    """Count the endings of each day; raise a QualityError if one is impossible or a duplicate."""
    wrong = F.count_if(F.expr(" or ".join(rule for _, rule in _RULES)))
    days = batch.groupBy("date").agg(
        F.count("*").alias("rows"), wrong.alias("wrong"), F.count_distinct(*map(F.col, KEY)).alias("endings")
    )
    looked = days.collect()
    sound = all(row["wrong"] == 0 and row["rows"] == row["endings"] for row in looked)
    if not sound or (before is not None and not batch.join(before, [*KEY], "left_semi").isEmpty()):
        _complain(violations(batch, before))
    return {str(row["date"]): row["rows"] for row in looked}


def violations(batch: DataFrame, before: DataFrame | None) -> DataFrame:
    """Return the rows of a batch that violate a rule, with the rule."""
    broken = F.array_compact(F.array(*(F.when(F.expr(rule), F.lit(name)) for name, rule in _RULES)))
    impossible = batch.withColumn("violation", F.explode(broken)).select(*_FIELDS)
    again = batch.groupBy(*KEY).count().where("count > 1").select(*KEY)
    twice = _with(batch.join(again, [*KEY]), "counted twice: the same ending came more than once")
    if before is None:
        return impossible.unionByName(twice)
    known = _with(batch.join(before, [*KEY], "left_semi"), "counted twice: this ending is in the lake already")
    return impossible.unionByName(twice).unionByName(known)


def _with(rows: DataFrame, violation: str) -> DataFrame:
    return rows.withColumn("violation", F.lit(violation)).select(*_FIELDS)


def _complain(wrong: DataFrame) -> None:
    rows = [row.asDict() for row in wrong.orderBy("seq", "violation").limit(SHOWN).collect()]
    raise QualityError(wrong.count() if len(rows) == SHOWN else len(rows), rows)
