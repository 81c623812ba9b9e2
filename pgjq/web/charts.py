"""Charts as inline SVG, drawn on the server, without inline styles, which our CSP forbids.

A plot is 600 units wide and 100 high, whatever its size on the screen. Its labels are HTML beside it, which stays
readable on a phone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from pgjq.web.formatting import NOTHING, duration
from pgjq.web.query import link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.storage.inspection import Minute

WIDE: Final = 600.0
HIGH: Final = 100.0
_RULE: Final = Markup('<line class="rule" x1="0" x2="600" y1="{0}" y2="{0}"/>')
# The legend leads to the same jobs, so the keyboard need not stop at each minute.
_TIP: Final = Markup(
    '<a href="{}" tabindex="-1"><rect class="tip" x="{}" width="{}" y="0" height="100"><title>{} UTC: {}</title></rect>'
    "</a>"
)
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart: its shapes, the label of its top, and what it shows."""

    title: str
    svg: Markup
    top: str
    middle: str
    latest: str
    is_empty: bool
    keys: Sequence[tuple[str, str, str]] = ()


def charts_of(minutes: Sequence[Minute], span: int, queue: str | None, now: datetime | None = None) -> list[Chart]:
    """Return charts of the last `span` minutes; each minute links to the jobs that ended in it."""
    end = (now or datetime.now(UTC)).replace(second=0, microsecond=0)
    known = {minute.at.astimezone(UTC): minute for minute in minutes}
    slots = [known.get(end - timedelta(minutes=back)) for back in range(span, 0, -1)]
    return [
        _throughput(slots, end, queue),
        _line("Wait, median", [m and m.waited for m in slots], end, queue),
        _line("Run time, median", [m and m.ran for m in slots], end, queue),
        _line("Age of the oldest ready job", [m and m.oldest for m in slots], end, queue),
    ]


def _throughput(slots: Sequence[Minute | None], end: datetime, queue: str | None) -> Chart:
    stacks = [[float(getattr(m, state)) if m else 0.0 for m in slots] for state in ("completed", "failed", "cancelled")]
    sums = [sum(column) for column in zip(*stacks, strict=True)]
    top = nice_ceiling(max(sums, default=0.0))
    shapes = Markup().join(
        _bar(number, column, len(slots), top) for number, column in enumerate(zip(*stacks, strict=True))
    )
    texts = [f"{m.completed:,} completed, {m.failed:,} failed, {m.cancelled:,} cancelled" if m else "" for m in slots]
    latest = next((total for total, m in zip(reversed(sums), reversed(slots), strict=True) if m), None)
    since = f"{len(slots)}m"
    keys = [
        (css, state, link("jobs", queue=queue, state=state, ended_after=since))
        for css, state in (("c2", "completed"), ("c6", "failed"), ("c7", "cancelled"))
    ]
    drawn = _chart("Jobs ended per minute", shapes, texts, end=end, ends=(top, latest), label=_plain, queue=queue)
    return replace(drawn, keys=keys)


def _bar(number: int, values: Sequence[float], slots: int, top: float) -> Markup:
    width, base, drawn = WIDE / slots, 0.0, Markup()
    for css, value in zip(("c2", "c6", "c7"), values, strict=True):
        if value:
            height = max(HIGH * value / top, 0.8)
            drawn += Markup('<rect class="{}" x="{}" width="{}" y="{}" height="{}"/>').format(
                css, f"{number * width:.2f}", f"{width * 0.86:.2f}", f"{HIGH - base - height:.2f}", f"{height:.2f}"
            )
            base += height
    return drawn


def _line(title: str, values: Sequence[float | None], end: datetime, queue: str | None) -> Chart:
    top = nice_ceiling(max((value for value in values if value is not None), default=0.0))
    shapes = Markup().join(_stretch(run, len(values), top) for run in _stretches(values))
    texts = ["" if value is None else duration(value) for value in values]
    latest = next((value for value in reversed(values) if value is not None), None)
    return _chart(title, shapes, texts, end=end, ends=(top, latest), label=duration, queue=queue)


def _stretch(run: Sequence[tuple[int, float]], slots: int, top: float) -> Markup:
    width = WIDE / slots
    points = [((n + 0.5) * width, HIGH - HIGH * value / top) for n, value in run]
    if len(points) == 1:
        points = [(points[0][0] - width / 2, points[0][1]), (points[0][0] + width / 2, points[0][1])]
    line = " ".join(f"{x:.1f},{y:.2f}" for x, y in points)
    area = f"{points[0][0]:.1f},{HIGH:g} {line} {points[-1][0]:.1f},{HIGH:g}"
    return Markup('<polygon class="area" points="{}"/><polyline class="line" points="{}"/>').format(area, line)


def _stretches(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((number, value))
    return [run for run in runs if run]


def _chart(
    title: str,
    shapes: Markup,
    texts: Sequence[str],
    *,
    end: datetime,
    ends: tuple[float, float | None],
    label: Callable[[float], str],
    queue: str | None,
) -> Chart:
    top, latest = ends
    rules = Markup().join(_RULE.format(y) for y in (0, 50, 100))
    tips = Markup().join(_tip(number, text, len(texts), end, queue) for number, text in enumerate(texts) if text)
    svg = Markup(
        '<svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(title, rules, shapes, tips)
    now = NOTHING if latest is None else label(latest)
    return Chart(title, svg, label(top), label(top / 2), now, not any(texts))


def _tip(number: int, text: str, slots: int, end: datetime, queue: str | None) -> Markup:
    at = end - timedelta(minutes=slots - number)
    until = at + timedelta(minutes=1)
    target = link("jobs", queue=queue, ended_after=at.isoformat(), ended_before=until.isoformat())
    return _TIP.format(target, f"{number * WIDE / slots:.2f}", f"{WIDE / slots:.2f}", f"{at:%H:%M}", text)


def nice_ceiling(value: float) -> float:
    """Return a round number that is not below a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * 0.999999)


def _plain(value: float) -> str:
    return f"{value:,.4g}"
