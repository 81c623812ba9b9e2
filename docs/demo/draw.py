"""Draw the screens of a terminal as one SVG, which shows the last one for some seconds and then replays the run.

Each row of each screen is drawn once and shown while it was there. Where animations are not shown, or not wanted
(`prefers-reduced-motion`), the last screen stands still. The window is dark on every page; nothing is fetched: the font
is the reader's, and each piece of text is fitted to its columns.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from docs.demo.terminal import Row, Screen, Style

WIDTH, HEIGHT = 8.4, 20  # Of a character.
MARGIN, TITLE = 18, 36
HOLD = 8.0  # Seconds for the last screen.
COLORS = {"": "#e6edf3", "31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "38;5;237": "#3d444d"}
# Lines that are drawn and not written, as fonts leave gaps: their first and last column, in halves, and thickness.
LINES = {"━": (0, 2, 3), "╸": (0, 1, 3), "╺": (1, 2, 3), "─": (0, 2, 1)}

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"
 role="img" aria-labelledby="t d">
<title id="t">pgjq demo</title>
<desc id="d">{text}</desc>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.b{{font-weight:bold}}
.past{{opacity:0}}
@media (prefers-reduced-motion:no-preference){{
{animations}
}}
</style>
<rect x=".5" y=".5" width="{inner:g}" height="{below:g}" rx="9.5" fill="#0d1117" stroke="#444c56"/>
<circle cx="22" cy="19" r="6" fill="#ff5f57"/><circle cx="42" cy="19" r="6" fill="#febc2e"/>
<circle cx="62" cy="19" r="6" fill="#28c840"/>
{rows}
</svg>
"""


def draw(screens: Sequence[Screen]) -> str:
    """Make the SVG."""
    length = screens[-1].seconds + HOLD
    shown = sorted(_shown(screens, length), key=itemgetter(0, 2))
    columns = max(len(row) for _, row, _, _ in shown)
    width = columns * WIDTH + 2 * MARGIN
    height = TITLE + (shown[-1][0] + 1) * HEIGHT + MARGIN
    return SVG.format(
        width=width,
        height=height,
        inner=width - 1,
        below=height - 1,
        text=escape("\n".join("".join(char for char, _ in row).rstrip() for row in screens[-1].rows).strip()),
        animations="\n".join(_animation(n, *times, length) for n, (_, _, *times) in enumerate(shown)),
        rows="\n".join(_row(n, y, row, past=end < length) for n, (y, row, _, end) in enumerate(shown)),
    )


def _shown(screens: Sequence[Screen], length: float) -> Iterator[tuple[int, Row, float, float]]:
    """Yield each row that was ever there, with its place, its first second and the second at which it goes."""
    since: dict[tuple[int, Row], float] = {}
    for screen in screens:
        there = {(y, row) for y, row in enumerate(screen.rows) if any(char != " " for char, _ in row)}
        for place in since.keys() - there:
            yield *place, since.pop(place), screen.seconds
        for place in there:
            since.setdefault(place, screen.seconds)
    for place, first in since.items():
        yield *place, first, length


def _animation(number: int, first: float, end: float, length: float) -> str:
    steps = {0.0: 0, first: 1, end: 0}
    frames = "".join(f"{second / length:.2%}{{opacity:{on}}}" for second, on in steps.items() if second < length)
    timing = f"{length:.2f}s step-end {HOLD - length:.2f}s infinite"  # It begins with the last screen.
    return f".r{number}{{animation:k{number} {timing}}}@keyframes k{number}{{{frames}}}"


def _row(number: int, y: int, row: Row, *, past: bool) -> str:
    top = TITLE + y * HEIGHT
    parts = "".join(_parts(row, top))
    return f'<g class="r{number}{" past" if past else ""}">{parts}</g>'


def _parts(row: Row, top: float) -> Iterator[str]:
    column = 0
    for (style, line), cells in groupby(row, key=lambda cell: (cell[1], LINES.get(cell[0]))):
        text = "".join(char for char, _ in cells)
        if line is not None:
            yield _line(line, column, len(text), style, top)
        elif text.strip():
            yield _text(text, column, style, top)
        column += len(text)


def _line(line: tuple[int, int, int], column: int, count: int, style: Style, top: float) -> str:
    first, last, thick = line
    x, width = MARGIN + (column + first / 2) * WIDTH, (count - 1 + (last - first) / 2) * WIDTH
    y = top + (HEIGHT - thick) / 2
    return f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{thick}" fill="{_color(style)}"/>'


def _text(text: str, column: int, style: Style, top: float) -> str:
    start = column + len(text) - len(text.lstrip())
    text = text.strip()
    weight = ' class="b"' if style.bold else ""
    fitted = f'textLength="{len(text) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
    place = f'x="{MARGIN + start * WIDTH:.1f}" y="{top + 14:g}"'
    return f'<text {place} fill="{_color(style)}"{weight} {fitted}>{escape(text)}</text>'


def _color(style: Style) -> str:
    if style.color.startswith("38;2;"):
        return "#{:02x}{:02x}{:02x}".format(*map(int, style.color.split(";")[2:]))
    return COLORS[style.color]
