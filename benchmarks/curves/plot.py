"""Curves as SVG: one panel for each measure, sizes on a logarithmic axis, values on a linear one that begins at 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLUMNS, WIDTH, HEIGHT = 2, 450, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 66, 42
COLOURS = ("#2563eb", "#2a8c55", "#c0392b", "#b7791f", "#7c3aed", "#0e7490")
STYLE = """text{font:12px sans-serif;fill:#333}.grid{stroke:#888;opacity:.25}.curve{fill:none;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#ddd}}"""

Curve = list[tuple[int, float]]


@dataclass
class Panel:
    """One measure: its title, what the sizes are, the unit of the values, and a curve for each name."""

    title: str
    sizes: str
    unit: str
    curves: dict[str, Curve] = field(default_factory=dict[str, Curve])

    def add(self, name: str, size: int, value: float) -> None:
        """Add a point to a curve."""
        self.curves.setdefault(name, []).append((size, value))

    def markdown(self) -> str:
        """Return the points as a table."""
        sizes = sorted({size for curve in self.curves.values() for size, _ in curve})
        lines = [f"| {self.title} ({self.unit}), {self.sizes} | " + " | ".join(f"{size:,}" for size in sizes) + " |"]
        lines.append("|---|" + "---:|" * len(sizes))
        for name, curve in self.curves.items():
            points = dict(curve)
            lines.append(f"| {name} | {' | '.join(number(points.get(size)) for size in sizes)} |")
        return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """Write a value with as many digits as help."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(panels: Sequence[Panel], remark: str) -> str:
    """Draw all panels below each other, two in a row."""
    rows = -(-len(panels) // COLUMNS)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT + 24}" role="img">'
    parts = [head, f"<title>How pgjq grows</title><style>{STYLE}</style>"]
    for index, panel in enumerate(panels):
        x, y = index % COLUMNS * WIDTH, index // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    parts += [f'<text x="8" y="{rows * HEIGHT + 14}">{escape(remark)}</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for curve in panel.curves.values() for point in curve]
    lowest, highest = min(size for size, _ in points), max(size for size, _ in points)
    top = _ceiling(max(value for _, value in points))
    yield f'<text x="8" y="16" font-weight="bold">{escape(panel.title)} ({escape(panel.unit)})</text>'
    for share in (0, 0.5, 1):
        y = _y(share * top, top)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.0f}" x2="{WIDTH - RIGHT}" y2="{y:.0f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{share * top:,g}</text>'
    for size in sorted({size for size, _ in points}):
        x = _x(size, lowest, highest)
        yield f'<text x="{x:.0f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(size)}</text>'
    yield f'<text x="{LEFT}" y="{HEIGHT - BOTTOM + 32}">{escape(panel.sizes)}</text>'
    yield from _curves(panel, lowest, highest, top)


def _curves(panel: Panel, lowest: int, highest: int, top: float) -> Iterator[str]:
    x, y = LEFT, 26
    for colour, (name, curve) in zip(COLOURS, panel.curves.items(), strict=False):
        line = " ".join(f"{_x(size, lowest, highest):.0f},{_y(value, top):.0f}" for size, value in sorted(curve))
        yield f'<polyline class="curve" stroke="{colour}" points="{line}"/>'
        for point in line.split():
            across, down = point.split(",")
            yield f'<circle cx="{across}" cy="{down}" r="3" fill="{colour}"/>'
        if x + 14 + 7 * len(name) > WIDTH:
            x, y = LEFT, y + 16
        yield f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 14}" y="{y + 9}">{escape(name)}</text>'
        x += 24 + 7 * len(name)


def _x(size: int, lowest: int, highest: int) -> float:
    width = WIDTH - LEFT - RIGHT
    if lowest == highest:
        return LEFT + width / 2
    return LEFT + width * math.log(max(size, 1) / max(lowest, 1)) / math.log(highest / max(lowest, 1))


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _ceiling(value: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if value <= power * step)


def _short(size: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return str(size)
