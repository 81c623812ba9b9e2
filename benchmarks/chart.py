"""A chart of ratios, as SVG: one bar for each finding with a target, on a scale on which every target is one line.

A bar shows how a ratio stands to its target: at the line it is just met, and to its right it is met with room. Where
less is better, the quotient is turned around. The thin line shows the middle half of the rounds.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Finding

WIDTH, LABELS, BAR, GAP, TOP = 900, 520, 16, 8, 34
SCALE = 170  # Pixels from 0 to the line of the targets.
LONGEST = 2.0
STYLE = """text{font:12px sans-serif;fill:#333}.met{fill:#2a8c55}.missed{fill:#c0392b}.line{stroke:#333}
.range{stroke:#333;stroke-width:1.5;opacity:.6}
@media (prefers-color-scheme:dark){text{fill:#ddd}.line,.range{stroke:#ddd}}"""


def draw(findings: Sequence[Finding]) -> str:
    """Draw the findings that have a target."""
    shown = [finding for finding in findings if finding.target is not None]
    height = TOP + len(shown) * (BAR + GAP) + GAP
    line = LABELS + SCALE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>Measured ratios against their targets</title><style>{STYLE}</style>",
        f'<text x="{line}" y="14" text-anchor="middle">target</text>',
        *(_row(finding, TOP + n * (BAR + GAP)) for n, finding in enumerate(shown)),
        f'<line class="line" x1="{line}" y1="20" x2="{line}" y2="{height}"/>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(finding: Finding, y: int) -> str:
    label = f"{finding.what} : {finding.against}"
    low, high = (_place(finding, ratio) for ratio in finding.middle_half)
    middle = y + BAR / 2
    return (
        f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(_cut(label))}</text>'
        f'<rect class="{finding.verdict}" x="{LABELS}" y="{y}" width="{_place(finding, finding.ratio):.0f}" '
        f'height="{BAR}"/><line class="range" x1="{LABELS + low:.0f}" y1="{middle}" x2="{LABELS + high:.0f}" '
        f'y2="{middle}"/><text x="{WIDTH - 4}" y="{y + 12}" text-anchor="end">{finding.ratio:.2f} '
        f"({escape(str(finding.target))})</text>"
    )


def _place(finding: Finding, ratio: float) -> float:
    """Return how far to the right a ratio is, in pixels from 0."""
    assert finding.target is not None
    quotient = ratio / finding.target.bound
    better = quotient if finding.target.side == "at least" else 1 / max(quotient, 1e-9)
    return SCALE * min(better, LONGEST)


def _cut(text: str) -> str:
    return text if len(text) <= 84 else f"{text[:83]}…"
