"""Run a command in a pseudo-terminal and keep what it prints, with times: a file in asciinema's format, version 2."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLUMNS, ROWS = 76, 26
# The colours of the terminal, whatever the caller's is.
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
PLAIN = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI"}


def record(command: Sequence[str]) -> str:
    """Run one of this environment's programs; return the recording, which begins with the prompt."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "command": " ".join(command)}
    prompt = (0.0, f"\x1b[1m$\x1b[0m {' '.join(command)}\r\n\r\n")
    events = [[round(seconds, 2), "o", text] for seconds, text in (prompt, *_run(command))]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (header, *events))


def _run(command: Sequence[str]) -> Iterator[tuple[float, str]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in PLAIN} | TERMINAL
    program = Path(sys.executable).with_name(command[0])
    begun = time.monotonic()
    with subprocess.Popen([program, *command[1:]], stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        decoder = codecs.getincrementaldecoder("utf-8")()
        for data in _chunks(master):
            yield time.monotonic() - begun, decoder.decode(data)
    os.close(master)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed, with exit code {process.returncode}")


def _chunks(master: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux's answer when the program has closed its side.
            return
        if not data:
            return
        yield data
