"""A check at the end of every test: no thread, process, socket or other open file, and no asyncio task, is left over.

* Each test is compared with its own beginning. What a fixture of a wider scope starts is taken as having been there.
* Garbage is collected before the comparison, so that pytest reports an unclosed transport or a coroutine that was never
  awaited as an error of the test that left it. What is alive after a test is frozen, so that this stays cheap.
* What ends by itself, such as a thread whose loop was told to stop, has `GRACE_SECONDS` to do so.
* A test about a coroutine that cannot be ended is marked `abandons_tasks`: asyncio may complain about it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

GRACE_SECONDS = 5.0
FILES = Path("/proc/self/fd")
TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Resources:
    """What this process has at one moment. Without /proc only its threads are known."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]
    files: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> Resources:
        """Look at everything."""
        return cls(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_open_files()))

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.threads - other.threads, self.processes - other.processes, self.files - other.files)

    def __or__(self, other: Resources) -> Resources:
        return Resources(self.threads | other.threads, self.processes | other.processes, self.files | other.files)

    def __bool__(self) -> bool:
        return bool(self.threads or self.processes or self.files)

    def described(self) -> list[str]:
        """One line for each, with what helps to find where it comes from."""
        return [
            *(_describe_thread(thread) for thread in self.threads),
            *(_describe_process(process) for process in sorted(self.processes)),
            *(_describe_file(*file) for file in sorted(self.files)),
        ]


def _children() -> Iterator[int]:
    for task in TASKS.iterdir() if TASKS.is_dir() else ():
        try:
            yield from map(int, (task / "children").read_bytes().split())
        except OSError:  # That thread has ended, or this kernel does not tell.
            continue


def _open_files() -> Iterator[tuple[int, str]]:
    for entry in FILES.iterdir() if FILES.is_dir() else ():
        try:
            yield int(entry.name), str(entry.readlink())
        except OSError:  # The descriptor with which the directory is read.
            continue


def _describe_thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.format_stack(frame)[-3:] if frame else []
    return f"thread {thread.name!r}, in\n{''.join(stack)}"


def _describe_process(process: int) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    command = " ".join(word.decode(errors="replace") for word in words).strip()
    return f"process {process}: {command[:200] or 'ended, but not waited for'}"


def _describe_file(number: int, target: str) -> str:
    if not target.startswith("socket:"):
        return f"open file {number}: {target}"
    return f"socket {number}: {' -> '.join(map(repr, ends_of(number)))}"


def ends_of(number: int) -> list[Any]:
    """Return the addresses of a socket, its own and, if it is connected, its peer's."""
    ends: list[Any] = []
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
        ends.append(copy.getsockname())
        ends.append(copy.getpeername())
    return ends


class TaskErrors(logging.Handler):
    """Keeps what asyncio logs about tasks that were destroyed while pending, or failed unseen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())

    def taken(self) -> list[str]:
        """Return the messages, once."""
        messages, self.messages = self.messages, []
        return messages


class Check:
    """Compares a test's end with its beginning."""

    def __init__(self) -> None:
        self._asyncio = TaskErrors()
        logging.getLogger("asyncio").addHandler(self._asyncio)
        self._known = Resources.now()

    def begin(self) -> None:
        """Take what is there now as the test's beginning."""
        self._asyncio.taken()
        self._known = Resources.now()

    def adopt(self, resources: Resources) -> None:
        """Take what a fixture of a wider scope has started as having been there before."""
        self._known |= resources

    def new(self) -> Resources:
        """Return what was not there in the beginning."""
        return Resources.now() - self._known

    def left(self, *, ignore_tasks: bool = False) -> list[str]:
        """Describe what was not there in the beginning, and does not go within the grace."""
        gc.collect()
        deadline = time.monotonic() + GRACE_SECONDS
        while (rest := self.new()) and time.monotonic() < deadline:
            time.sleep(0.005)
        gc.freeze()
        tasks = self._asyncio.taken()
        return rest.described() + ([] if ignore_tasks else tasks)


CHECK = pytest.StashKey[Check]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin with the whole run."""
    config.stash[CHECK] = Check()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what collecting made out of every later collection of garbage."""
    del session
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Take what fixtures of a wider scope start as having been there."""
    if fixturedef.scope == "function":
        return (yield)
    before = Resources.now()
    try:
        return (yield)
    finally:
        request.config.stash[CHECK].adopt(Resources.now() - before)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test at whose end there is something that was not there at its beginning."""
    check = request.config.stash[CHECK]
    check.begin()
    yield
    left = check.left(ignore_tasks=request.node.get_closest_marker("abandons_tasks") is not None)
    if left:
        pytest.fail(f"{request.node.nodeid} left behind:\n" + "\n".join(left), pytrace=False)
