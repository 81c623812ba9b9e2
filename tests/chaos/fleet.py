"""The processes that faults hit: started by name, killed, stopped, continued, and replaced by new ones."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.chaos.roles import GRACE
from tests.worker.worker_processes import ForkedProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

# Processes whose number is 1 or 2 are never replaced: their memory, sockets and threads are measured.
LASTING = ("worker-1", "worker-2", "reaper-1", "producer-1", "caller-1")
REPLACED = ("worker-3", "worker-4", "reaper-2", "producer-2", "caller-2")
STOP_SECONDS = GRACE + 3 + 3  # The promise is grace and three seconds; the rest is for a busy machine.
ORPHAN_SECONDS = GRACE + 3 + 3 + 3  # Its workers have as long when a supervisor was killed, and then the parent ends.


@dataclass(frozen=True)
class Measure:
    """What a process uses."""

    rss_mb: float
    threads: int
    sockets: int


class Fleet:
    """Processes by name. `address` is where each finds its storage."""

    def __init__(self, directory: Path, address: Callable[[str], str], extra: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.names = (*LASTING, *REPLACED, *extra)
        self.replaced = (*REPLACED, *extra)
        self._address = address
        self._processes = ForkedProcesses("tests.chaos.roles")
        self._pids: dict[str, int] = {}
        self._expected_to_end: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._processes.__exit__(*exc)

    def start(self, name: str) -> None:
        self._pids[name] = self._processes.fork(name, self._address(name), str(self.directory))

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def replace(self, name: str) -> None:
        """Kill a process, and start another one in its place."""
        self._end(name)
        self.start(name)

    def kill(self, name: str) -> None:
        """Kill a process, and start none in its place."""
        self._expected_to_end.add(name)
        self._end(name)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Generator[None]:
        """Stop a process, and let it go on."""
        self.signal(name, signal.SIGSTOP)
        yield
        self.signal(name, signal.SIGCONT)

    def terminate(self, name: str) -> bool:
        """Ask a process to end with SIGTERM; say whether it ended in time. One that does not is killed."""
        self._expected_to_end.add(name)
        self.signal(name, signal.SIGTERM)
        self.signal(name, signal.SIGCONT)  # Another fault may have stopped it, and a stopped process cannot end.
        in_time = _ends([self._pids[name]], STOP_SECONDS)
        self._end(name)
        return in_time

    def kill_supervisor(self, name: str) -> list[int]:
        """Kill the supervisor of a worker with several processes; return those that must end because of that."""
        self._expected_to_end.add(name)
        family: list[int] = []
        for supervisor in _children(self._pids[name]):
            family += [*_children(supervisor), self._pids[name]]
            os.kill(supervisor, signal.SIGKILL)
        return family

    def has_ended(self, name: str, family: list[int]) -> bool:
        """Say whether all processes ended in time; those that did not are killed."""
        self.signal(name, signal.SIGCONT)
        in_time = _ends(family, ORPHAN_SECONDS)
        for process in family:
            if _is_running(process):
                os.kill(process, signal.SIGKILL)
        return in_time

    def _end(self, name: str) -> None:
        """Kill a process and wait until it has ended: until then it counts as running, and none would replace it."""
        self._processes.kill(self._pids[name])
        while self.is_running(name):
            time.sleep(0.01)

    def start_again(self, name: str) -> None:
        """Start a process in the place of one that has ended, unless another fault has done so."""
        self._expected_to_end.discard(name)
        if not self.is_running(name):
            self.start(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self._pids[name], number)

    def is_running(self, name: str) -> bool:
        """Say whether a process has not ended; one that ended stays in the system's list until its parent ends."""
        return _is_running(self._pids[name])

    def ended(self) -> list[str]:
        """Return the processes that ended by themselves, and start others in their place."""
        gone = [name for name in self.names if name not in self._expected_to_end and not self.is_running(name)]
        for name in gone:
            self.start(name)
        return gone

    def measure(self, name: str) -> Measure:
        """Look at what a process uses."""
        process = Path(f"/proc/{self._pids[name]}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Measure(int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), _count_sockets(process))

    def lines(self, name: str, kind: str) -> list[str]:
        """Read one of a process's files; see `tests.chaos.roles`."""
        path = self.directory / f"{name}.{kind}"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def size(self, name: str, kind: str) -> int:
        """Return how many bytes are in one of a process's files."""
        path = self.directory / f"{name}.{kind}"
        return path.stat().st_size if path.exists() else 0

    def complaints(self) -> str:
        """Return what the parent process and its forks said before they had files of their own."""
        return self._processes.complaints()


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def _ends(processes: list[int], seconds: float) -> bool:
    """Wait until processes have ended; say whether they have."""
    deadline = time.monotonic() + seconds
    while any(map(_is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(_is_running, processes))


def _children(process: int) -> list[int]:
    """Return the children that the main thread of a process has forked; none if it has ended."""
    try:
        return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    except FileNotFoundError:
        return []


def _count_sockets(process: Path) -> int:
    count = 0
    for entry in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count
