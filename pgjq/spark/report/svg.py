"""Charts as SVG of any width, with HTML text beside them, which stays readable on a phone.

A plot is 1000 units wide and 100 high, whatever its size on the screen; strokes keep their width.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    Values = Sequence[float | None]

WIDE: Final = 1000.0
HIGH: Final = 100.0
COLOURS: Final = 8


def colour(number: int) -> str:
    """Return the colour of a series, which the style sheet defines for light and dark."""
    return f"var(--c{number % COLOURS})"


def nice_ceiling(value: float) -> float:
    """Return a round number that is not below a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999999)


def areas(stacks: Sequence[Sequence[float]], top: float, attributes: Sequence[str] | None = None) -> str:
    """Draw stacked series, with attributes of their own; a single day is a bar."""
    if len(stacks[0]) == 1:
        return bars(stacks, top)
    base = [0.0] * len(stacks[0])
    drawn: list[str] = []
    for number, values in enumerate(stacks):
        upper = [a + b for a, b in zip(base, values, strict=True)]
        there = [f"{x:.1f},{_y(v, top):.2f}" for x, v in zip(_xs(len(upper)), upper, strict=True)]
        back = [f"{x:.1f},{_y(v, top):.2f}" for x, v in zip(_xs(len(base)), base, strict=True)]
        own = attributes[number] if attributes else ""
        points = " ".join([*there, *reversed(back)])
        drawn.append(f'<polygon class="layer"{own} fill="{colour(number)}" points="{points}"/>')
        base = upper
    return "".join(drawn)


def bars(stacks: Sequence[Sequence[float]], top: float) -> str:
    """Draw series as stacked bars, one bar per day."""
    drawn: list[str] = []
    width = WIDE / max(1, len(stacks[0]))
    for day in range(len(stacks[0])):
        base = 0.0
        for number, values in enumerate(stacks):
            if values[day]:
                y, below = _y(base + values[day], top), _y(base, top)
                drawn.append(
                    f'<rect fill="{colour(number)}" x="{day * width + width * 0.1:.2f}" width="{width * 0.8:.2f}"'
                    f' y="{y:.2f}" height="{below - y:.2f}"/>'
                )
                base += values[day]
    return "".join(drawn)


def band(lower: Values, upper: Values, scale: Callable[[float], float], css: str) -> str:
    """Fill the area between two lines, where both are known."""
    drawn: list[str] = []
    for run in _known(lower, upper):
        there = [f"{x:.1f},{scale(high):.2f}" for x, _, high in run]
        back = [f"{x:.1f},{scale(low):.2f}" for x, low, _ in run]
        drawn.append(f'<polygon class="{css}" points="{" ".join([*there, *reversed(back)])}"/>')
    return "".join(drawn)


def line(values: Values, scale: Callable[[float], float], css: str) -> str:
    """Draw a line, with gaps for unknown values."""
    runs = _known(values, values)
    return "".join(
        f'<polyline class="{css}" points="{" ".join(f"{x:.1f},{scale(value):.2f}" for x, value, _ in run)}"/>'
        for run in runs
    )


def logarithmic(low: float, high: float) -> Callable[[float], float]:
    """Return a logarithmic scale."""
    bottom, span = math.log10(low), math.log10(high) - math.log10(low)
    return lambda value: HIGH - HIGH * (math.log10(min(max(value, low), high)) - bottom) / span


def marks(marked: Sequence[bool]) -> str:
    """Shade some days, behind later shapes, so that colours stay those of the legend."""
    width = WIDE / max(1, len(marked))
    return "".join(
        f'<rect class="mark" x="{n * width:.2f}" width="{width:.2f}" y="0" height="100"/>'
        for n, mark in enumerate(marked)
        if mark
    )


def tips(texts: Sequence[str]) -> str:
    """Add the figures of every day as a tooltip."""
    width = WIDE / max(1, len(texts))
    return "".join(
        f'<rect class="tip" x="{n * width:.2f}" width="{width:.2f}" y="0" height="100">'
        f"<title>{escape(text)}</title></rect>"
        for n, text in enumerate(texts)
    )


def plot(shapes: str, ys: Sequence[tuple[float, str]], dates: Sequence[date], label: str, css: str = "") -> str:
    """Put shapes between their axes: `ys` are heights from 0 (bottom) to 1, with their labels."""
    rules = "".join(f'<line class="rule" x1="0" x2="{WIDE:g}" y1="{y:.2f}" y2="{y:.2f}"/>' for y in
                    (HIGH - HIGH * share for share, _ in ys))  # fmt: skip
    words = "".join(f'<span style="bottom:{share * 100:.2f}%">{escape(text)}</span>' for share, text in ys)
    return (
        f'<div class="plot {css}"><div class="ys">{words}</div>'
        f'<svg viewBox="0 0 {WIDE:g} {HIGH:g}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'{rules}{shapes}</svg><div class="xs">{_calendar(dates)}</div></div>'
    )


def _calendar(dates: Sequence[date]) -> str:
    """Write about six days below a plot; a phone hides every other one."""
    step = max(1, round(len(dates) / 6))
    return "".join(
        f'<span style="left:{(n + 0.5) / len(dates) * 100:.2f}%">{dates[n].day} {dates[n]:%b}</span>'
        for n in range(step // 2, len(dates), step)
    )


def _xs(count: int) -> list[float]:
    return [(n + 0.5) * WIDE / count for n in range(count)]


def _y(value: float, top: float) -> float:
    return HIGH - HIGH * min(value / top, 1.0)


def _known(lower: Values, upper: Values) -> list[list[tuple[float, float, float]]]:
    """Cut two lines into stretches without gaps. A single day is drawn as wide as a day."""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for x, low, high in zip(_xs(len(lower)), lower, upper, strict=True):
        if low is None or high is None:
            stretches.append([])
        else:
            stretches[-1].append((x, low, high))
    half = WIDE / max(1, len(lower)) / 2
    return [
        [(x - half, low, high), (x + half, low, high)] if len(run) == 1 else run
        for run in stretches
        if run
        for x, low, high in run[:1]
    ]
