"""The page: its order, controls, and the verdict at the top. All text is escaped.

Ranges and queues are chosen without a script: each range is on the page, and style rules show the chosen one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgjq.spark.report.findings import Finding, find
from pgjq.spark.report.forecast_sections import backlog, outlook, targets, what_if
from pgjq.spark.report.formatting import count, share
from pgjq.spark.report.layout import address, day_name, linked
from pgjq.spark.report.sections import (
    advice,
    anomalies,
    failures,
    heat,
    latencies,
    quarantine,
    stalls,
    throughput,
)
from pgjq.spark.report.slo import ALL, DEFAULT, Objective, objectives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgjq.spark.report.report_data import Figures

RANGES: Final = {"7 days": 7, "4 weeks": 28}  # Beside everything.
TODAY: Final = 3
# The page loads nothing and runs nothing, even if a queue's name tries to.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Report:
    """What a page says, and what it links to: `web` is the address of pgjq's web page."""

    figures: Figures
    targets: Mapping[str, float] = field(default_factory=lambda: {ALL: DEFAULT})
    web: str | None = None

    def objectives(self) -> list[Objective]:
        """Measure each queue against its target."""
        return objectives(self.figures, self.targets)

    def findings(self) -> list[Finding]:
        """Return what to do, the most urgent first."""
        return find(self.figures, self.objectives())


def write_page(report: Report) -> str:
    """Return the whole page."""
    figures = report.figures
    first, last = figures.dates[0], figures.dates[-1]
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    ranges = {"everything": figures} | {
        name: figures.last(days) for name, days in RANGES.items() if len(figures.dates) > days
    }
    parts = (
        _verdict(report.findings(), report.web), _controls(ranges, figures.queues),
        *(_range(n, name, figures, part, report.web) for n, (name, part) in enumerate(ranges.items())),
        targets(figures, report.objectives(), report.web), outlook(figures), what_if(figures), stalls(figures),
        heat(figures), advice(figures), quarantine(figures),
    )  # fmt: skip
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Jobs, {first} to {last}</title><style>{style}{_choices(len(ranges), len(figures.queues))}</style>"
        f"</head><body><h1>Jobs that ended from {day_name(first)} to {day_name(last)}</h1>"
        f"<p>Days and hours are those of UTC.</p>{''.join(parts)}"
        "<footer>Made by pgjq pipeline report. Point at a day or an hour to see its figures.</footer></body></html>"
    )


def _verdict(findings: Sequence[Finding], web: str | None) -> str:
    """Say what to do today."""
    if not findings:
        quiet = "<h2>Nothing to do today</h2><p>No target is missed, and no setting disagrees.</p>"
        return f'<section class="verdict">{quiet}</section>'
    shown = findings[:TODAY]
    items = "".join(
        f"<li><b>{linked(one.title, address(web, one.page))}</b><p>{escape(one.why)}</p>"
        f"<pre>{escape(one.command)}</pre></li>"
        for one in shown
    )
    what = "One thing" if len(shown) == 1 else f"{('Two', 'Three')[len(shown) - 2]} things"
    more = len(findings) - len(shown)
    rest = f"<p>{more} more: see anomalies and advice below.</p>" if more else ""
    return f'<section class="verdict"><h2>{what} to do today</h2><ol>{items}</ol>{rest}</section>'


def _controls(ranges: Mapping[str, Figures], queues: Sequence[str]) -> str:
    """Offer the ranges and the queues."""
    times = "".join(
        f'<label><input type="radio" name="range" id="r{n}"{" checked" if n == 0 else ""}>{escape(name)}</label>'
        for n, name in enumerate(ranges)
    )
    names = "".join(
        f'<label><input type="radio" name="queue" id="q{n}">{escape(name)}</label>' for n, name in enumerate(queues)
    )
    every = '<label><input type="radio" name="queue" id="all" checked>all queues</label>'
    return f'<div class="controls"><fieldset>{times}</fieldset><fieldset>{every}{names}</fieldset></div>'


def _choices(ranges: int, queues: int) -> str:
    """Return the style rules that show the chosen range and queue."""
    shown = "".join(f"body:has(#r{n}:checked) .range:not(.r{n}){{display:none}}" for n in range(ranges))
    kept = "".join(f'body:has(#q{n}:checked) [data-q]:not([data-q="{n}"]){{display:none}}' for n in range(queues))
    return shown + kept


def _range(n: int, name: str, whole: Figures, part: Figures, web: str | None) -> str:
    """Lay out the sections of a range, compared with the days before it where there are enough."""
    days = len(part.dates)
    before = whole.last(days, before=days) if len(whole.dates) >= 2 * days else None
    inside = _tiles(part, before) + throughput(part) + backlog(part) + anomalies(part, web) + latencies(part)
    return f'<div class="range r{n}" aria-label="{escape(name)}">{inside}{failures(part)}</div>'


def _tiles(figures: Figures, before: Figures | None) -> str:
    total, earlier = figures.totals, None if before is None else before.totals
    ended = max(1, total["ended"])
    disagree = sum(1 for row in figures.advice if row["disagrees"])
    tiles = (
        (count(total["ended"]), f"jobs ended in {len(figures.queues)} queues", _change("ended", total, earlier), False),
        (share(total["completed"] / ended), "completed", _change("completed", total, earlier), False),
        (count(total["failed"]), f"failed, {share(total['failed'] / ended)}", _change("failed", total, earlier), False),
        (count(total["cancelled"]), "cancelled", _change("cancelled", total, earlier), False),
        (str(len(figures.anomalies)), "anomalies", "", bool(figures.anomalies)),
        (str(disagree), "queues to look at", "", bool(disagree)),
    )
    drawn = "".join(
        f'<div class="tile{" warm" if warm else ""}"><b>{escape(value)}</b><span>{escape(words)}</span>{change}</div>'
        for value, words, change, warm in tiles
    )
    return f'<div class="tiles">{drawn}</div>'


def _change(name: str, now: Mapping[str, int], before: Mapping[str, int] | None) -> str:
    """Compare a number with that of the period before."""
    if before is None:
        return ""
    if not before[name]:
        return "<em>0 in the period before</em>" if now[name] else ""
    return f"<em>{now[name] / before[name] - 1:+.0%} on the period before</em>"
