"""The figures of a report, read from a lake's Parquet files without Spark or Java."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, date, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pgjq.spark.pipeline.lake import Lake

Row = dict[str, Any]
OTHERS: Final = "others"
SLOTS: Final = 7 * 24
# Columns that come from the directory name, not from the file.
_PLACE: Final = ("run", "batch", "date")


@dataclass(frozen=True, slots=True)
class Figures:
    """The data of a page. Lists by day are as long as `dates`; the largest queue comes first."""

    dates: list[date]
    queues: list[str]
    days: Mapping[str, Mapping[date, Row]]
    errors: Mapping[str, Mapping[date, int]]
    stalls: list[tuple[str, str, int, int]]
    heat: Mapping[str, list[float]]
    advice: list[Row]
    anomalies: list[Row]
    totals: Row = field(default_factory=dict[str, Any])
    quarantine: Mapping[str, int] = field(default_factory=dict[str, int])  # By the rule that rows break.

    def number(self, queue: str) -> int | None:
        """Return a queue's number on the page; None for what is no queue, such as all others."""
        return self.queues.index(queue) if queue in self.queues else None

    def last(self, days: int, before: int = 0) -> Figures:
        """Return the figures of the last days, or of as many days that ended `before` days ago."""
        dates = self.dates[: len(self.dates) - before][-days:]
        kept = {
            queue: {day: row for day, row in rows.items() if day in set(dates)} for queue, rows in self.days.items()
        }
        rows = [row for rows in kept.values() for row in rows.values()]
        return replace(
            self,
            dates=dates,
            days=kept,
            errors={
                name: {day: n for day, n in rows.items() if day in set(dates)} for name, rows in self.errors.items()
            },
            anomalies=[row for row in self.anomalies if dates[0] <= row["begins"].astimezone(UTC).date() <= dates[-1]],
            totals={name: sum(row[name] for row in rows) for name in self.totals},
        )


def read_figures(lake: Lake) -> Figures:
    """Read the data of a page."""
    if lake.manifest.whole is None:
        raise ValidationError(f"the lake in {lake.root} holds no endings yet: pgjq pipeline run brings them in")
    rows = _rows(lake, "days")
    days, dates = _by_queue(rows), _all_dates(rows)
    queues = sorted(days, key=lambda queue: -sum(row["ended"] for row in days[queue].values()))
    return Figures(
        dates=dates,
        queues=queues,
        days=days,
        errors=_errors(_rows(lake, "errors")),
        stalls=_stalls(_rows(lake, "workers")),
        heat=average_hours(lake, dates),
        advice=sorted(_rows(lake, "advice"), key=lambda row: (not row["disagrees"], queues.index(row["queue"]))),
        anomalies=sorted(_rows(lake, "anomalies"), key=lambda row: (row["begins"], row["queue"], row["task"])),
        totals={name: sum(row[name] for row in rows) for name in ("ended", "completed", "failed", "cancelled")},
        quarantine=Counter(row["violation"] for row in _rows(lake, "quarantine")),
    )


def largest(counts: Mapping[str, Mapping[date, int]], limit: int) -> dict[str, dict[date, int]]:
    """Keep the largest series, and merge the others into one."""
    ranked = sorted(counts, key=lambda name: -sum(counts[name].values()))
    kept = {name: dict(counts[name]) for name in ranked[:limit]}
    rest: dict[date, int] = defaultdict(int)
    for name in ranked[limit:]:
        for day, count in counts[name].items():
            rest[day] += count
    return kept | {OTHERS: dict(rest)} if rest else kept


def average_hours(lake: Lake, dates: Iterable[date]) -> dict[str, list[float]]:
    """Return each queue's endings in an average hour of the week, from Monday's first hour.

    A month may have five Mondays and four Tuesdays: each weekday is divided by its own number.
    """
    pa, pc = _untyped("pyarrow"), _untyped("pyarrow.compute")
    table = _table(lake, "metrics")
    hours = pc.cast(table["hour"], pa.timestamp("us", "UTC"))
    slots = pc.add(pc.multiply(pc.day_of_week(hours), 24), pc.hour(hours))
    sums = pa.table({"queue": table["queue"], "slot": slots, "ended": table["ended"]}).group_by(["queue", "slot"])
    weekdays = Counter(day.weekday() for day in dates)
    heat: dict[str, list[float]] = defaultdict(lambda: [0.0] * SLOTS)
    for row in sums.aggregate([("ended", "sum")]).to_pylist():
        heat[row["queue"]][row["slot"]] = row["ended_sum"] / weekdays[row["slot"] // 24]
    return dict(heat)


def _untyped(module: str) -> Any:
    """Import a module without types."""
    return import_module(module)


def _table(lake: Lake, name: str) -> Any:
    pa, ds = _untyped("pyarrow"), _untyped("pyarrow.dataset")
    files = [
        str(file) for directory in lake.manifest.directories(name) for file in (lake.root / directory).glob("*.parquet")
    ]
    if not files:
        return None
    layout = ds.partitioning(pa.schema([(column, pa.string()) for column in _PLACE]), flavor="hive")
    source = ds.dataset(files, format="parquet", partitioning=layout, partition_base_dir=str(lake.root / name))
    return source.to_table()


def _rows(lake: Lake, name: str) -> list[Row]:
    table = _table(lake, name)
    rows: list[Row] = [] if table is None else table.to_pylist()
    return [row | ({"date": date.fromisoformat(row["date"])} if row.get("date") else {}) for row in rows]


def _by_queue(rows: Iterable[Row]) -> dict[str, dict[date, Row]]:
    days: dict[str, dict[date, Row]] = defaultdict(dict)
    for row in rows:
        days[row["queue"]][row["date"]] = row
    return dict(days)


def _all_dates(rows: Iterable[Row]) -> list[date]:
    """Return every day from the first to the last, also those without endings."""
    seen = {row["date"] for row in rows}
    first, last = min(seen), max(seen)
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def _errors(rows: Iterable[Row]) -> dict[str, dict[date, int]]:
    counts: dict[str, dict[date, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[row["error_type"] or "unknown"][row["date"]] += row["failed"]
    return {name: dict(days) for name, days in counts.items()}


def _stalls(rows: Iterable[Row]) -> list[tuple[str, str, int, int]]:
    """Return worker, queue, stalls and endings, the worst first."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        counts[row["worker"], row["queue"]][0] += row["stalls"]
        counts[row["worker"], row["queue"]][1] += row["ended"]
    found = [(worker, queue, stalls, ended) for (worker, queue), (stalls, ended) in counts.items() if stalls]
    return sorted(found, key=lambda one: (-one[2], one[0]))
