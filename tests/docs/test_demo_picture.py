"""The picture of the demo is what the recording shows, and stands alone."""

from __future__ import annotations

import re

import pytest

from docs.demo.__main__ import CAST, PICTURE
from docs.demo.draw import draw
from docs.demo.terminal import Terminal, screens


def text(row: tuple[tuple[str, object], ...]) -> str:
    return "".join(character for character, _ in row).rstrip()


def test_the_picture_is_drawn_from_the_recording() -> None:
    assert draw(screens(CAST.read_text())) == PICTURE.read_text()


def test_the_recording_ends_with_checks_that_are_all_right() -> None:
    rows = [text(row) for row in screens(CAST.read_text())[-1].rows]
    checks = [row for row in rows if row.endswith(("right", "wrong"))]
    assert len(checks) == 5
    assert all(check.endswith("right") for check in checks)
    assert any("kill -9" in row for row in rows)


def test_the_picture_fetches_nothing() -> None:
    assert re.findall(r"https?://[^\"]+|url\(|@import|<script", PICTURE.read_text()) == ["http://www.w3.org/2000/svg"]


def test_a_terminal_shows_what_is_left_after_a_line_is_written_again() -> None:
    terminal = Terminal()
    terminal.write("one\r\n\x1b[32mtwo\x1b[0m\r\x1b[2Kthree\x1b[1A\rO")
    assert [text(row) for row in terminal.rows] == ["One", "three"]


def test_a_sequence_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="not understood"):
        Terminal().write("\x1b[5;5H")
    with pytest.raises(ValueError, match="not understood"):
        Terminal().write("\x1b]0;title\x07")
