"""`pgjq top` in a real terminal (tmux), at two sizes: what it shows, and what its keys do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.cli.top.keys import decode
from pgjq.outcome import Failed
from pgjq.storage.base import Settlement
from tests.programs import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 60.0
ERROR = pgjq.JobError("ValueError", "no such order 7", 'Traceback\n  File "/srv/mail.py", line 12, in send\nValueError')


class Terminal:
    """A terminal of a given size in which `pgjq top` runs."""

    def __init__(self, directory: Path, url: str, width: int, height: int) -> None:
        if shutil.which("tmux") is None:
            missing("tmux is not installed (Debian: apt-get install tmux)")
        self._tmux = ["tmux", "-S", str(directory / "tmux"), "-f", os.devnull]
        command = f"{sys.executable} -m pgjq top --url {url} --interval 0.2; echo left with $?; cat"
        self._call("new-session", "-d", "-x", str(width), "-y", str(height), command)

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout

    def screen(self) -> str:
        return self._call("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self._call("send-keys", *keys)

    def until(self, is_so: Callable[[str], bool]) -> str:
        end = time.monotonic() + PATIENCE
        while not is_so(screen := self.screen()):
            assert time.monotonic() < end, screen
            time.sleep(0.05)
        return screen

    def shows(self, *texts: str) -> str:
        return self.until(lambda screen: all(text in screen for text in texts))

    def close(self) -> None:
        self._call("kill-server")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[pgjq.FileStorage]:
    storage = pgjq.FileStorage(tmp_path / "jobs")
    client = pgjq.Client(storage)
    client.enqueue("mail", "broken", {})
    ops: Any = storage.operations("sync")
    (job,) = drive(ops.claim(["mail"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(ERROR))]))
    client.enqueue("reports", "\x1b[2Jhostile", {})
    for number in range(30):
        client.enqueue(f"q{number:02}", "1", {})
    yield storage
    storage.close()


@pytest.fixture(params=[(80, 24), (200, 60)], ids=["80x24", "200x60"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path, storage: pgjq.FileStorage) -> Iterator[Terminal]:
    del storage
    opened = Terminal(tmp_path, f"file://{tmp_path / 'jobs'}", *request.param)
    yield opened
    opened.close()


def test_a_person_finds_what_is_wrong_and_steers(terminal: Terminal, storage: pgjq.FileStorage) -> None:
    client = pgjq.Client(storage)
    first = terminal.shows("no worker serves queue", "pgjq worker MODULE:QUEUE", "1 failed", "q quit")
    assert "1 job of mail failed with ValueError at mail.py:12 in send: no such order 7" in first
    assert first.rstrip("\n").splitlines()[-1].startswith("enter jobs")

    terminal.press("p")
    terminal.shows("pause queue mail? y yes")
    terminal.press("n")
    terminal.shows("not done")
    assert not client.get_queue("mail").paused
    terminal.press("p", "y")
    terminal.shows("queue mail is paused", "mail (paused)")
    assert client.get_queue("mail").paused
    terminal.press("p", "y")
    terminal.shows("queue mail is resumed")

    terminal.press("f")
    terminal.shows("mail broken: ", "ValueError: no such order 7 (mail.py:12 in send)", "pgjq status mail broken")
    terminal.press("r", "y")
    terminal.shows("job broken is queued", "no job failed lately")
    assert client.get_status("mail", "broken").state == "queued"

    terminal.press("Escape")
    terminal.shows("pgjq top queues")
    terminal.press("Enter")
    terminal.shows("pgjq top jobs of mail")
    terminal.shows("broken  ")
    terminal.press("c", "y")
    terminal.shows("job broken is cancelled")
    assert client.get_status("mail", "broken").state == "cancelled"

    terminal.press("w")
    terminal.shows("no worker: pgjq worker MODULE")
    terminal.press("d")
    terminal.shows("connection" if terminal.screen().count("\n") > 30 else "queues", "finding, and what to do")
    terminal.press("Escape", "End", "Enter")
    terminal.shows("pgjq top jobs of reports", "\\x1b[2Jhostile")
    terminal.press("q")
    terminal.shows("left with 0")


def test_a_terminal_is_needed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pgjq", "top", "--url", f"file://{tmp_path}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert answer.returncode == 1
    assert "needs a terminal" in answer.stderr


def test_keys_that_arrive_in_pieces() -> None:
    assert decode(b"\x1b[A\x1b[Bq") == (["up", "down", "q"], b"")
    keys, rest = decode(b"j\x1b[")
    assert (keys, rest) == (["j"], b"\x1b[")
    assert decode(rest + b"5~") == (["page up"], b"")
    assert decode(b"\x1b") == ([], b"\x1b")  # The beginning of a key, or the key: the time tells.
    assert decode("é".encode()) == ([], b"")
