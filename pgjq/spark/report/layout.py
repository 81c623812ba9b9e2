"""Sections, tables and legends of the page, as HTML. All text is escaped."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from pgjq.spark.report.formatting import count
from pgjq.spark.report.svg import colour

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: cells as class, heading and text; its queue's number; link; notes."""

    cells: Sequence[tuple[str, str, str]]
    queue: int | None = None
    link: str | None = None
    notes: Sequence[str] = ()


def table(lines: Sequence[Line]) -> str:
    """Lay lines out. Notes follow their line, at full width; the link is on the first cell."""
    head = "".join(f'<th class="{css}">{escape(title)}</th>' for css, title, _ in lines[0].cells)
    body = "".join(_row(line) + _notes(line) for line in lines)
    return f'<div class="scroll"><table class="cards"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def of_queue(number: int | None) -> str:
    """Return the attribute by which the choice of a queue hides other queues."""
    return "" if number is None else f' data-q="{number}"'


def linked(text: str, link: str | None) -> str:
    """Return a text, as a link if there is one."""
    return escape(text) if link is None else f'<a href="{escape(link)}">{escape(text)}</a>'


def address(web: str | None, page: str) -> str | None:
    """Return the address of something in the web page, if there is one."""
    return None if web is None else f"{web.rstrip('/')}/{page}"


def _row(line: Line) -> str:
    drawn = "".join(
        f'<td class="{css}" data-of="{escape(title)}"><span>{linked(text, None if n else line.link)}</span></td>'
        for n, (css, title, text) in enumerate(line.cells)
    )
    return f"<tr{of_queue(line.queue)}>{drawn}</tr>"


def _notes(line: Line) -> str:
    told = "".join(f"<li>{escape(note)}</li>" for note in line.notes)
    columns = len(line.cells)
    return f'<tr class="note"{of_queue(line.queue)}><td colspan="{columns}"><ul>{told}</ul></td></tr>' if told else ""


def number(value: float) -> str:
    """Write a number as short as its size allows: 12, 1.5, 0.025."""
    if value >= 1:
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"  # noqa: PLR2004  (for small values a tenth matters)
    return f"{value:.2g}"


def section(title: str, why: str, inside: str) -> str:
    """Lay out a part of the page: its heading, what it shows, and the figure."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(why)}</p>{inside}</section>"


def legend(totals: Mapping[str, float], write: Callable[[float], str] = count) -> str:
    """List the series of a figure, in their colours and with their totals."""
    items = "".join(
        f'<li><i style="background:{colour(n)}"></i>{escape(name)} <span>{write(total)}</span></li>'
        for n, (name, total) in enumerate(totals.items())
    )
    return f'<ul class="legend">{items}</ul>'


def day_name(day: date) -> str:
    """Write a date: 7 Nov 2026."""
    return f"{day.day} {day:%b %Y}"
