"""A process is killed at every call it makes to the operating system: an operation is done, or it is not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import FileStorage, MemoryStorage
from pgjq.blocking import drive
from pgjq.storage.file.journal_format import decode_line
from pgjq.testing import ManualClock
from tests.file.operations import Operations, look

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


class CrashRunner:
    """Starts victims, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.file.crashing_process"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def crash_at(self, directory: Path, number: int, least: int) -> tuple[int, int]:
        """Have a child die at a call; return how it ended, and how many steps it was answered for."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([str(directory), number, least]), file=self.process.stdin, flush=True)
        status, answered = json.loads(self.process.stdout.readline())
        return status, answered


@pytest.fixture(scope="module")
def crash_runner() -> Iterator[CrashRunner]:
    crash_runner = CrashRunner()
    with crash_runner.process as process:
        yield crash_runner
        assert process.stdin
        process.stdin.close()


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """What can be seen before the first step and after each, by the reference model."""
    clock = ManualClock()
    sequence = Operations(MemoryStorage(clock=clock), clock)
    return [sequence.look(), *[(step(), sequence.look())[1] for step in sequence.steps]]


@pytest.mark.parametrize("least", [0, 4 << 20], ids=["journal always written anew", "journal appended to"])
def test_an_operation_that_is_killed_is_done_or_not_done(
    crash_runner: CrashRunner, expected: list[Any], memory_disk: Path, least: int
) -> None:
    number, status = 0, signal.SIGKILL
    while status == signal.SIGKILL:
        directory = memory_disk / str(number)
        status, answered = crash_runner.crash_at(directory, number, least)
        check(directory, expected, answered)
        number += 1
    assert (status, answered) == (0, len(expected) - 1)
    assert number > 50


def check(directory: Path, expected: list[Any], answered: int) -> None:
    """What was answered for is there; what was under way is there whole, or nothing of it; everything works."""
    clock = ManualClock()
    storage = FileStorage(directory, clock=clock)
    found = look(storage)
    assert found in expected[answered : answered + 2]
    lines = (directory / "journal").read_bytes().splitlines()
    assert all(decode_line(line) is not None for line in lines)
    assert list((directory / "aside").iterdir()) == []
    clock.advance(100)
    assert drive(storage.operations("sync").elect("reaper", "bob", ttl=30))
    sequence = Operations(storage, clock)
    sequence.enqueue("z")
    assert look(storage)[-1].id == "z"
    storage.close()


def test_a_journal_cut_at_any_byte_is_the_story_up_to_a_step(expected: list[Any], memory_disk: Path) -> None:
    """What a power failure leaves of a journal is a beginning of it."""
    clock = ManualClock()
    storage = FileStorage(memory_disk / "whole", clock=clock)
    for step in Operations(storage, clock).steps:
        step()
    storage.close()
    whole = (memory_disk / "whole" / "journal").read_bytes()
    reached = 0
    for length in range(len(whole.splitlines()[0]) + 1, len(whole), 37):
        found = look_at(memory_disk / str(length), whole[:length])
        assert found in expected[reached:]
        reached = expected.index(found)
    assert reached >= len(expected) - 5


def look_at(directory: Path, journal: bytes) -> Any:
    directory.mkdir()
    (directory / "journal").write_bytes(journal)
    clock = ManualClock()
    clock.advance(31)
    storage = FileStorage(directory, clock=clock)
    try:
        return look(storage)
    finally:
        storage.close()
