"""The sections that look ahead: targets, backlog, forecast, and what more load would need."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pgjq.spark.report.findings import jobs_page
from pgjq.spark.report.forecast import AHEAD, LEAST, forecast
from pgjq.spark.report.formatting import NOTHING, count, share
from pgjq.spark.report.layout import Line, address, day_name, legend, number, of_queue, section, table
from pgjq.spark.report.svg import areas, nice_ceiling, plot, tips

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.spark.report.report_data import Figures
    from pgjq.spark.report.slo import Objective

MORE: Final = (1.2, 1.5, 2.0)
MOST_SERIES: Final = 7


def targets(figures: Figures, objectives: Sequence[Objective], web: str | None) -> str:
    """List each queue's target and how fast it uses up what may fail."""
    lines = [
        Line(
            (
                ("name", "queue", one.queue),
                ("n", "target", f"{one.target:g} %"),
                *(("n", f"burn rate, {days} d", _rate(burn)) for days, burn in one.burns.items()),
                ("n", "budget left, 28 d", share(one.left)),
                ("", "", "missed" if one.is_missed else "kept"),
            ),
            figures.number(one.queue),
            address(web, jobs_page(queue=one.queue, state="failed")),
        )
        for one in objectives
    ]
    why = (
        "The share of jobs that must complete, and the burn rate: how many times as many fail as may. At 1, exactly "
        "the budget is used; a target is missed if it was over 1 in the last seven days. --slo mail=99.9 sets one."
    )
    return section("Targets", why, table(lines))


def backlog(figures: Figures) -> str:
    """Draw how many jobs waited on average, day by day."""
    waits = {
        queue: [float(days[day].get("wait_seconds") or 0.0) / 86400 if day in days else 0.0 for day in figures.dates]
        for queue, days in figures.days.items()
    }
    ranked = sorted(waits, key=lambda queue: -sum(waits[queue]))[:MOST_SERIES]
    stacks = [waits[queue] for queue in ranked]
    top = nice_ceiling(max(map(sum, zip(*stacks, strict=True)), default=1.0))
    texts = [
        "\n".join([day_name(day), *(f"{queue}: {number(waits[queue][n])} waiting" for queue in ranked)])
        for n, day in enumerate(figures.dates)
    ]
    steps = [(part / 4, number(top * part / 4)) for part in range(5)]
    own = [of_queue(figures.number(queue)) for queue in ranked]
    drawn = plot(areas(stacks, top, own) + tips(texts), steps, figures.dates, "Jobs waiting, by day and queue")
    why = (
        "Jobs that waited at an average moment of each day: the waits of all jobs that ran once, divided by the day "
        "(Little's law). A requested delay counts as waiting."
    )
    averages = {queue: sum(waits[queue]) / len(figures.dates) for queue in ranked}
    return section("Backlog", why, drawn + legend(averages, number))


def outlook(figures: Figures) -> str:
    """List what each queue should get in the next days, and the error of lately."""
    lines: list[Line] = []
    for queue in figures.queues:
        counts = {day: row["ended"] for day, row in figures.days[queue].items()}
        if (ahead := forecast(counts, figures.dates)) is None:
            break
        last = sum(counts.get(day, 0) for day in figures.dates[-AHEAD:])
        busiest, most = max(ahead.days.items(), key=lambda one: one[1])
        cells = (
            ("name", "queue", queue),
            ("n", "last 7 days", count(last)),
            ("n", "next 7 days", count(ahead.total)),
            ("n", "busiest day", f"{busiest:%a} {busiest.day} {busiest:%b}, {count(most)}"),
            ("n", "error on the last 7 days", NOTHING if ahead.error is None else f"\u00b1 {share(ahead.error)}"),
        )
        lines.append(Line(cells, figures.number(queue)))
    why = (
        "Jobs expected to end: for each day the median of the same weekday in the last four weeks. The error is what "
        "this method would have missed on the last seven days, from the days before them."
    )
    return section("Forecast", why, table(lines) if lines else f"<p>It needs {LEAST} days of history.</p>")


def what_if(figures: Figures) -> str:
    """List the slots of workers that each queue needs now, and with more load."""
    lines = [
        Line(
            (
                ("name", "queue", row["queue"]),
                ("n", "now", str(row["concurrency"])),
                *(("n", f"{more - 1:.0%} more load", str(_slots(row, more))) for more in MORE),
            ),
            figures.number(row["queue"]),
        )
        for row in figures.advice
    ]
    why = (
        "Slots of workers (workers times their concurrency) that a busy hour needs, at 70 % load: the runs at once "
        "that 99 of 100 hours stayed below. It grows with the load, as long as the run time stays the same."
    )
    return section("What if", why, table(lines) if lines else "<p>Too few completed runs to say anything.</p>")


def _slots(row: dict[str, object], more: float) -> int:
    at_once = row.get("at_once")
    needed = float(at_once) / 0.7 if isinstance(at_once, (int, float)) else float(str(row["concurrency"]))
    return max(1, math.ceil(needed * more))


def _rate(burn: float | None) -> str:
    return NOTHING if burn is None else f"{burn:.2g}"
