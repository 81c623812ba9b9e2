"""Sections, tables and legends of the page, as HTML. All text is escaped."""

from __future__ import annotations

from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

from pgjq.spark.report.svg import colour
from pgjq.spark.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date


def table(rows: Sequence[Sequence[tuple[str, str, str]]], notes: Sequence[Sequence[str]] = ()) -> str:
    """Lay rows out; a cell is class, heading and text. Notes follow their row, at full width."""
    head = "".join(f'<th class="{css}">{escape(title)}</th>' for css, title, _ in rows[0])
    body = "".join(_row(row) + _note(note, len(row)) for row, note in zip_longest(rows, notes, fillvalue=()))
    return f'<div class="scroll"><table class="cards"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(cells: Sequence[tuple[str, str, str]]) -> str:
    drawn = "".join(
        f'<td class="{css}" data-of="{escape(title)}"><span>{escape(text)}</span></td>' for css, title, text in cells
    )
    return f"<tr>{drawn}</tr>"


def _note(lines: Sequence[str], columns: int) -> str:
    told = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<tr class="note"><td colspan="{columns}"><ul>{told}</ul></td></tr>' if told else ""


def number(value: float) -> str:
    """Write a number, with a tenth where it is small."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"  # noqa: PLR2004  (for small values a tenth matters)


def section(title: str, why: str, inside: str) -> str:
    """Lay out a part of the page: its heading, what it shows, and the figure."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(why)}</p>{inside}</section>"


def legend(totals: Mapping[str, float]) -> str:
    """List the series of a figure, in their colours and with their totals."""
    items = "".join(
        f'<li><i style="background:{colour(n)}"></i>{escape(name)} <span>{count(total)}</span></li>'
        for n, (name, total) in enumerate(totals.items())
    )
    return f'<ul class="legend">{items}</ul>'


def day_name(day: date) -> str:
    """Write a date: 7 Nov 2026."""
    return f"{day.day} {day:%b %Y}"
