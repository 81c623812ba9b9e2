"""Pages that are to be followed at the keyboard, followed: files are written, commands given, answers compared.

A Python block with a title is a file of that name, or the end of one. In a `console` block, lines with a `$` are
commands and the others are what they answer, where `…` stands for anything. A console with a title is a terminal of its
own: its command goes on while the page does, until the next one there, and lines without a command are awaited.

The server is the tests' own, as if the reader had one: the embedded one would be started, migrated and stopped at every
step.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.pages import PAGES, Block, blocks, name

FILE = re.compile(r"([\w.]+)(?:, from (.+) on)?")
PATIENCE = 60


class Terminal:
    """A command in the background, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def expect(self, line: str) -> None:
        """Wait until it has said a line."""
        with self._news:
            said = self._news.wait_for(lambda: any(map(pattern(line).fullmatch, self._said)), PATIENCE)
        assert said, f"waited for {line!r}, and heard {self._said}"

    def interrupt(self) -> None:
        """Press Ctrl-C, unless it has died, and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()
        assert self._process.returncode in (0, -signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            with self._news:
                self._said.append(line.rstrip())
                self._news.notify_all()


class Keyboard:
    """A reader who follows a page in a directory."""

    def __init__(self, directory: Path, url: str, stack: ExitStack) -> None:
        self._directory = directory
        self._url = url
        self._stack = stack
        self._terminals: dict[str, Terminal] = {}

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self._write(block)
        elif block.title is None:
            self._answer(block)
        else:
            self._converse(block.title, block.text.splitlines())

    def _write(self, block: Block) -> None:
        title = FILE.fullmatch(block.title or "")
        assert title, f"{block.title} is no file's name"
        file = self._directory / title[1]
        kept = file.read_text().partition(title[2])[0] if title[2] else ""
        file.write_text(kept + block.text)

    def _answer(self, block: Block) -> None:
        for command, *lines in split(block.text):
            told = subprocess.run(**self._shell(command), timeout=PATIENCE, check=False).stdout.splitlines()
            wanted = [pattern(line) for line in lines]
            same = len(told) == len(wanted) and all(p.fullmatch(line) for p, line in zip(wanted, told, strict=True))
            assert same, f"{name(block.page)}: {command} said {told}"

    def _converse(self, title: str, lines: list[str]) -> None:
        if lines[0].startswith("$ "):
            if title in self._terminals:
                self._terminals[title].interrupt()
            terminal = Terminal(subprocess.Popen(**self._shell("exec " + lines.pop(0)[2:])))
            self._stack.callback(terminal.interrupt)
            self._terminals[title] = terminal
        for line in lines:
            self._terminals[title].expect(line)

    def _shell(self, command: str) -> dict[str, object]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            "args": ["bash", "-c", command],
            "cwd": self._directory,
            "env": {**os.environ, "PATH": path, "PGJQ_URL": self._url},
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
        }


def split(text: str) -> list[list[str]]:
    """Cut a session into commands, each with the lines of its answer."""
    sessions: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            sessions.append([line[2:]])
        else:
            sessions[-1].append(line)
    return sessions


def pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, line.split("…"))))


@pytest.mark.timeout(300)  # Some twenty processes, on a machine that may be busy.
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_a_page_can_be_followed_at_the_keyboard(page: Path, empty_database: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        keyboard = Keyboard(tmp_path, "postgresql:///?" + urlencode(conninfo_to_dict(empty_database)), stack)
        for block in blocks(page, "python", "console"):
            if block.excuse is None:
                keyboard.follow(block)
