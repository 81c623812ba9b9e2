"""Keys of a terminal: bytes as they come from it, decoded to names."""

from __future__ import annotations

import os
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

NAMES: Final = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1bOC": "right", b"\x1bOD": "left", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[H": "home",
    b"\x1b[F": "end", b"\x1b[1~": "home", b"\x1b[4~": "end", b"\x1b": "escape", b"\r": "enter", b"\n": "enter",
    b"\x7f": "backspace", b"\x08": "backspace", b"\x03": "ctrl-c", b"\x04": "ctrl-d",
}  # fmt: skip
_LONGEST_FIRST: Final = sorted(NAMES, key=len, reverse=True)


def decode(data: bytes) -> tuple[list[str], bytes]:
    """Return the keys in what was read, and the beginning of a sequence that is not complete.

    A slow connection may split the sequence of an arrow key; an escape alone is a key once nothing follows it.
    """
    keys: list[str] = []
    while data:
        name = next((code for code in _LONGEST_FIRST if data.startswith(code)), None)
        if data.startswith(b"\x1b") and name == b"\x1b" and _may_go_on(data):
            return keys, data
        if name is not None:
            keys.append(NAMES[name])
            data = data[len(name) :]
        elif data[0] < 0x80:  # noqa: PLR2004
            keys.append(chr(data[0]))
            data = data[1:]
        else:
            data = data[1:]
    return keys, b""


def _may_go_on(data: bytes) -> bool:
    return any(code != data and code.startswith(data) for code in NAMES)


@contextmanager
def key_presses() -> Generator[int]:
    """Let the terminal deliver each key at once and unechoed; yield its file descriptor."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        raw = termios.tcgetattr(terminal)
        raw[3] &= ~termios.ISIG  # Ctrl-C is a key: the screen is left in order.
        termios.tcsetattr(terminal, termios.TCSANOW, raw)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def pressed(terminal: int) -> bytes:
    """Read what has been pressed; empty if the terminal is gone."""
    try:
        return os.read(terminal, 1024)
    except OSError:
        return b""
