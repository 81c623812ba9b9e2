"""The chart of a soak: one small line chart for each curve, below each other."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, GAP = 760, 80, 60, 26
STYLE = """text{font:12px sans-serif;fill:#333}path{fill:none;stroke:#2563eb;stroke-width:1.5}.axis{stroke:#999}
@media (prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#7aa5ff}}"""


def draw(title: str, seconds: Sequence[float], curves: Mapping[str, Sequence[float]]) -> str:
    """Return an SVG of curves over time; each has a scale of its own, from zero."""
    total = 30 + len(curves) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="0" y="14" font-weight="bold">{escape(title)}</text>',
        *(_curve(name, seconds, values, 30 + n * (HEIGHT + GAP)) for n, (name, values) in enumerate(curves.items())),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _curve(name: str, seconds: Sequence[float], values: Sequence[float], top: int) -> str:
    highest = max(values, default=0.0) or 1.0
    last = max(seconds, default=0.0) or 1.0
    points = [
        f"{LEFT + (WIDTH - LEFT - 4) * at / last:.1f},{top + 14 + HEIGHT - 14 - (HEIGHT - 14) * value / highest:.1f}"
        for at, value in zip(seconds, values, strict=True)
    ]
    line = f'<path d="M{" L".join(points)}"/>' if points else ""
    return (
        f'<text x="{LEFT}" y="{top + 8}">{escape(name)}</text>'
        f'<text x="{LEFT - 6}" y="{top + 24}" text-anchor="end">{highest:,.0f}</text>'
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{LEFT}" y1="{top + HEIGHT}" x2="{WIDTH - 4}" y2="{top + HEIGHT}"/>{line}'
    )
