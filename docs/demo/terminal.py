"""Replay a recording: what the terminal showed, and when.

It understands what Rich's progress bar writes (carriage return, line feed, cursor up, erase line, colours) and refuses
everything else, so that a picture is never wrong unnoticed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

TOKEN = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|([\r\n])|([^\x00-\x1f\x7f])")
CURSOR = {"h", "l"}  # With a question mark: the cursor is shown and hidden.


@dataclass(frozen=True, slots=True)
class Style:
    """How a character looks; `color` is the parameter of the escape sequence: "32", "38;5;237"."""

    color: str = ""
    bold: bool = False


Cell = tuple[str, Style]
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Screen:
    """What was there from some second on."""

    seconds: float
    rows: tuple[Row, ...]


PLAIN = Style()
BLANK: Cell = (" ", PLAIN)


class Terminal:
    """Rows of characters and a cursor. It never scrolls: the whole run is one picture."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style = PLAIN

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return what is shown now."""
        return tuple(tuple(row) for row in self._rows)

    def write(self, text: str) -> None:
        """Show what a program printed; raise ValueError for a sequence that is not understood."""
        end = 0
        for token in TOKEN.finditer(text):
            if token.start() != end:
                break
            self._take(*token.groups(default=""))
            end = token.end()
        if end != len(text):
            raise ValueError(f"not understood: {text[end : end + 20]!r}")

    def _take(self, private: str, parameters: str, final: str, control: str, character: str) -> None:
        if character:
            self._put(character)
        elif control == "\r":
            self._column = 0
        elif control == "\n":
            self._row += 1
            self._rows.extend([] for _ in range(self._row + 1 - len(self._rows)))
        else:
            self._obey(private, parameters, final)

    def _put(self, character: str) -> None:
        row = self._rows[self._row]
        row.extend([BLANK] * (self._column + 1 - len(row)))
        row[self._column] = (character, self._style)
        self._column += 1

    def _obey(self, private: str, parameters: str, final: str) -> None:
        if final == "m":
            self._style = restyled(self._style, parameters)
        elif final == "K" and parameters == "2":
            self._rows[self._row] = []
        elif final == "A":
            self._row -= int(parameters or 1)
        elif not (private and final in CURSOR):
            raise ValueError(f"not understood: ESC [ {private}{parameters}{final}")


def restyled(style: Style, parameters: str) -> Style:
    """Apply a sequence of colours and weights."""
    numbers = (parameters or "0").split(";")
    while numbers:
        number = numbers.pop(0)
        if number == "0":
            style = PLAIN
        elif number == "1":
            style = replace(style, bold=True)
        elif number == "38":
            count = 4 if numbers[0] == "2" else 2  # Red, green and blue, or a number of the palette.
            style = replace(style, color=";".join((number, *numbers[:count])))
            del numbers[:count]
        else:
            style = replace(style, color=number)
    return style


def screens(cast: str, least: float = 0.25) -> list[Screen]:
    """Replay a recording into its screens, at most one per `least` seconds, and the last."""
    terminal = Terminal()
    found: list[Screen] = []
    for seconds, _, text in map(json.loads, cast.splitlines()[1:]):
        terminal.write(text)
        if found and seconds - found[-1].seconds < least:
            continue
        found.append(Screen(seconds, terminal.rows))
    return [*found, Screen(seconds, terminal.rows)]
