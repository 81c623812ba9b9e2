"""Charts and tables of past jobs, as sections of the page. All text is escaped."""

from __future__ import annotations

from datetime import UTC, timedelta
from html import escape
from typing import TYPE_CHECKING, Final

from pgjq.spark.report.findings import anomaly_page
from pgjq.spark.report.formatting import MEASURES, between, count, duration, measured, stretch
from pgjq.spark.report.layout import Line, address, day_name, legend, number, of_queue, section, table
from pgjq.spark.report.report_data import SLOTS, Figures, Row, largest
from pgjq.spark.report.svg import areas, band, bars, line, logarithmic, marks, nice_ceiling, plot, tips

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date

MOST_SERIES: Final = 7  # Plus one for the others.
MOST_QUEUES: Final = 12
MOST_ANOMALIES: Final = 60
MOST_WORKERS: Final = 20
DECADES: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 360000.0)
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LATENCY_LEGEND: Final = (
    '<ul class="legend"><li><i class="key-middle"></i>half took less (p50)</li>'
    '<li><i class="key-near"></i>95 of 100 took less (p95)</li>'
    '<li><i class="key-wide"></i>99 of 100 took less (p99)</li>'
    '<li><i class="key-mark"></i>a day with anomalies</li></ul>'
)


def throughput(figures: Figures) -> str:
    """Draw the endings of each day, by queue."""
    counts = {queue: {day: row["ended"] for day, row in days.items()} for queue, days in figures.days.items()}
    series = largest(counts, MOST_SERIES)
    stacks = _stacks(series, figures.dates)
    texts = _day_texts(series, figures.dates, "ended")
    own = [of_queue(figures.number(name)) for name in series]
    shapes = marks(_marked(figures)) + areas(stacks, _top(stacks), own) + tips(texts)
    drawn = plot(shapes, _steps(_top(stacks)), figures.dates, "Jobs ended each day, by queue")
    why = "Jobs that ended each day, by queue. Days with anomalies are shaded."
    return section("Throughput", why, drawn + legend({name: sum(days.values()) for name, days in series.items()}))


def anomalies(figures: Figures, web: str | None) -> str:
    """List the hours and days that left their band, with links to their jobs."""
    if not figures.anomalies:
        return section("Anomalies", "", "<p>No hour left its band.</p>")
    shown = sorted(figures.anomalies, key=lambda row: -abs(row["score"]))[:MOST_ANOMALIES]
    shown.sort(key=lambda row: (row["begins"], row["queue"], row["task"]), reverse=True)
    lines = [
        Line(
            (
                ("when", "when", stretch(row["begins"].astimezone(UTC), row["ends"].astimezone(UTC))),
                ("name", "queue, task", _named(row)),
                ("", "what", f"{MEASURES[row['measure']]} {row['side']} its band{_grain(row)}"),
                ("n", "at worst", measured(row["measure"], row["value"], row.get("grain", "hour"))),
                ("n", "usually", measured(row["measure"], row["usual"], row.get("grain", "hour"))),
                ("n", "band", between(row["measure"], row["low"], row["high"], row.get("grain", "hour"))),
            ),
            figures.number(row["queue"]),
            address(web, anomaly_page(row)),
        )
        for row in shown
    ]
    more = len(figures.anomalies) - len(shown)
    why = "Hours, and of rare queues days, that were unlike those of other days, the newest first." + (
        f" Of {len(figures.anomalies)}, the {len(shown)} that stand out most." if more else ""
    )
    return section("Anomalies", why, table(lines))


def latencies(figures: Figures) -> str:
    """Draw how long the jobs of each queue ran and waited."""
    drawn = "".join(
        _latency(queue, figures, kind, title)
        for queue in figures.queues[:MOST_QUEUES]
        for kind, title in (("run", "run time"), ("wait", "wait"))
    )
    why = (
        "How long jobs took, day by day; every step upwards is several times as long. Run time is that of completed "
        "runs; the wait is from enqueue to start, of jobs that ran once."
    )
    left = len(figures.queues) - MOST_QUEUES
    rest = f"<p>{left} smaller queues are not shown.</p>" if left > 0 else ""
    return section("Latency", why, f'{LATENCY_LEGEND}<div class="grid pairs">{drawn}</div>{rest}')


def _latency(queue: str, figures: Figures, kind: str, title: str) -> str:
    days, own = figures.days[queue], of_queue(figures.number(queue))
    lines = {
        name: [days[day][f"{kind}_{name}"] if day in days else None for day in figures.dates]
        for name in ("p50", "p95", "p99")
    }
    known = [value for values in lines.values() for value in values if value is not None]
    if not known:
        return f"<div{own}><h3>{escape(queue)}: {title}</h3><p>Nothing to measure.</p></div>"
    low, high = _decades(min(known), max(known))
    scale = logarithmic(low, high)
    shapes = (
        marks(_marked(figures, queue))
        + band(lines["p50"], lines["p99"], scale, "wide-band")
        + band(lines["p50"], lines["p95"], scale, "near-band")
        + line(lines["p50"], scale, "middle")
        + tips(_quantile_texts(lines, figures.dates))
    )
    ys = [(1 - scale(step) / 100, duration(step)) for step in DECADES if low <= step <= high]
    drawn = plot(shapes, ys, figures.dates, f"{title} of {queue} by day", "small")
    return f"<div{own}><h3>{escape(queue)}: {title}</h3>{drawn}</div>"


def failures(figures: Figures) -> str:
    """Draw the failures of each day, by error."""
    if not figures.errors:
        return section("Failures by error", "", "<p>Nothing failed.</p>")
    series = largest(figures.errors, MOST_SERIES)
    stacks = _stacks(series, figures.dates)
    shapes = bars(stacks, _top(stacks)) + tips(_day_texts(series, figures.dates, "failed"))
    drawn = plot(shapes, _steps(_top(stacks)), figures.dates, "Jobs failed each day, by error")
    why = "Jobs that failed for good each day, by the type of their last error."
    return section(
        "Failures by error", why, drawn + legend({name: sum(days.values()) for name, days in series.items()})
    )


def stalls(figures: Figures) -> str:
    """List the workers that lost runs."""
    if not figures.stalls:
        return section("Stalls by worker", "", "<p>No job stalled.</p>")
    most = figures.stalls[0][2]
    rows = "".join(
        f'<span>{escape(worker)} <span class="quiet">{escape(queue)}</span></span>'
        f'<i style="width:{stalls / most * 100:.2f}%"></i><span>{count(stalls)} of {count(ended + stalls)} runs</span>'
        for worker, queue, stalls, ended in figures.stalls[:MOST_WORKERS]
    )
    why = "Runs that were taken back because their worker went silent or took too long, by the worker that had them."
    return section("Stalls by worker", why, f'<div class="bars">{rows}</div>')


def heat(figures: Figures) -> str:
    """Draw the average week of each queue."""
    every = [sum(values[slot] for values in figures.heat.values()) for slot in range(SLOTS)]
    maps = {"all queues": every} | {queue: figures.heat[queue] for queue in figures.queues[: MOST_QUEUES - 1]}
    drawn = "".join(
        f"<div{of_queue(figures.number(name))}><h3>{escape(name)} "
        f'<span class="quiet">up to {number(max(values))} an hour</span></h3>{_heat_map(values)}</div>'
        for name, values in maps.items()
    )
    why = "Endings in an average hour of the week: the stronger the colour the more, each map by its own largest hour."
    return section("Heat map by hour", why, f'<div class="grid">{drawn}</div>')


def _heat_map(values: Sequence[float]) -> str:
    most = max(values) or 1.0
    head = "<b></b>" + "".join(f'<b class="hour">{hour if hour % 6 == 0 else ""}</b>' for hour in range(24))
    rows = "".join(
        f"<b>{day}</b>"
        + "".join(
            f'<i style="--h:{values[n * 24 + hour] / most * 100:.0f}%"'
            f' title="{day} {hour}:00, {number(values[n * 24 + hour])} an hour"></i>'
            for hour in range(24)
        )
        for n, day in enumerate(WEEKDAYS)
    )
    return f'<div class="heat">{head}{rows}</div>'


def advice(figures: Figures) -> str:
    """List what the history says about each queue's definition."""
    lines = [
        Line(
            (
                ("name", "queue", row["queue"]),
                ("n", "run p50", duration(row["run_p50"])),
                ("n", "p95", duration(row["run_p95"])),
                ("n", "p99", duration(row["run_p99"])),
                ("n", "visibility timeout", duration(row["visibility_timeout"])),
                ("n", "heartbeat", duration(row["heartbeat_seconds"])),
                ("n quiet", "in force", duration(row["current_heartbeat_seconds"])),
                ("n", "expire", duration(row["expire_in_seconds"])),
                ("n quiet", "in force", duration(row["current_expire_in_seconds"])),
                ("n", "concurrency", str(row["concurrency"])),
                ("n", "waiting now", _waiting(row)),
            ),
            figures.number(row["queue"]),
            notes=row["disagrees"],
        )
        for row in figures.advice
    ]
    why = (
        "What the last four weeks say about each queue's definition: a lease without heartbeats should last twice the "
        "95th percentile of run time. The value in force stands beside the advice, a dash where none is set; "
        "below, where the two disagree."
    )
    return section("Advice", why, table(lines) if lines else "<p>Too few completed runs to say anything.</p>")


def quarantine(figures: Figures) -> str:
    """Count the rows that cannot be true, by rule."""
    if not figures.quarantine:
        return ""
    why = "Rows of history that cannot be true are not counted above. The table quarantine has them."
    ranked = sorted(figures.quarantine.items(), key=lambda one: -one[1])
    lines = [Line((("", "rule", rule), ("n", "rows", count(rows)))) for rule, rows in ranked]
    return section("Quarantine", why, table(lines))


def _waiting(row: Row) -> str:
    if not row["backlog"]:
        return "0"
    return f"{count(row['backlog'])}, for {duration(row['backlog_age'])}"


def _stacks(series: Mapping[str, Mapping[date, int]], dates: Sequence[date]) -> list[list[float]]:
    return [[float(days.get(day, 0)) for day in dates] for days in series.values()]


def _top(stacks: Sequence[Sequence[float]]) -> float:
    return nice_ceiling(max(map(sum, zip(*stacks, strict=True))))


def _steps(top: float) -> list[tuple[float, str]]:
    return [(part / 4, count(top * part / 4)) for part in range(5)]


def _decades(low: float, high: float) -> tuple[float, float]:
    """Return the ends of the scale: decades around the values, at least one apart."""
    below = max((step for step in DECADES if step <= low), default=DECADES[0])
    above = min((step for step in DECADES if step >= high and step > below), default=max(high, below * 10))
    return below, above


def _day_texts(series: Mapping[str, Mapping[date, int]], dates: Sequence[date], verb: str) -> list[str]:
    def text(day: date) -> str:
        found = [(name, days[day]) for name, days in series.items() if days.get(day)]
        return "\n".join(
            [f"{day_name(day)}: {sum(n for _, n in found):,} {verb}", *(f"{name}: {n:,}" for name, n in found)]
        )

    return [text(day) for day in dates]


def _quantile_texts(lines: Mapping[str, Sequence[float | None]], dates: Iterable[date]) -> list[str]:
    return [
        "\n".join([day_name(day), *(f"{name}: {duration(values[n])}" for name, values in lines.items())])
        for n, day in enumerate(dates)
    ]


def _marked(figures: Figures, queue: str | None = None) -> list[bool]:
    """Return for each day whether it has an anomaly."""
    days: set[date] = set()
    for row in figures.anomalies:
        if queue in (None, row["queue"]):
            begins, last = row["begins"].astimezone(UTC), row["ends"].astimezone(UTC) - timedelta(hours=1)
            days.update(begins.date() + timedelta(days=n) for n in range((last.date() - begins.date()).days + 1))
    return [day in days for day in figures.dates]


def _grain(row: Row) -> str:
    return ", by day" if row.get("grain") == "day" else ""


def _named(row: Row) -> str:
    return f"{row['queue']}, {row['task']}" if row["task"] else row["queue"]
