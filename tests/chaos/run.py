"""One run: servers, a fleet, rounds of faults with probes after each, and the audit in the end."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgjq.embedded_cluster import throwaway_directory
from tests.chaos import database_user_faults, postgres_faults, redis_and_file_faults  # noqa: F401  (they register their kinds)
from tests.chaos.audit import Audit
from tests.chaos.faults import System, plan
from tests.chaos.fleet import LASTING, Fleet
from tests.chaos.probes import Probes
from tests.chaos.servers import MAKERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.faults import Fault
    from tests.chaos.fleet import Measure
    from tests.chaos.servers import StorageName

START_SECONDS = 60.0
WARM_ROUNDS = 8
STACKS_SECONDS = 2.0
COUNTED = ("lost", "doubled", "stuck", "deaf")
LOG_LINES = 25


@dataclass
class Result:
    """How many faults there were, and what was violated, by the name of the invariant."""

    faults: int = 0
    seconds: float = 0.0
    violations: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    recovery: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def count(self, name: str) -> int:
        return len(self.violations[name])

    @property
    def others(self) -> int:
        """Return how many violations there are of invariants that the last line does not count by name."""
        return sum(len(stories) for name, stories in self.violations.items() if name not in COUNTED)

    def add(self, other: Result) -> None:
        self.faults += other.faults
        self.seconds += other.seconds
        for name, stories in other.violations.items():
            self.violations[name] += stories


class Run:
    """A fleet on one storage, for as long as the block lasts."""

    def __init__(self, storage: StorageName, seed: int, kinds: tuple[str, ...], say: Callable[[str], None]) -> None:
        self._say = say
        self._rounds = plan(seed, storage, kinds)
        self.result = Result()
        self._latest: list[Fault] = []
        self._measured: dict[str, Measure] = {}
        self._stack = ExitStack()
        directory = self._stack.enter_context(throwaway_directory("chaos-"))
        self._servers = self._stack.enter_context(closing(MAKERS[storage](_folder(directory, "servers"))))
        fleet = Fleet(_folder(directory, "files"), self._servers.address, self._servers.extra)
        self._fleet = self._stack.enter_context(fleet)
        self._probes = self._stack.enter_context(closing(Probes(self._servers, self._fleet)))
        self._system = System(self._servers, self._fleet, self._violate)

    def close(self) -> None:
        self._stack.close()

    def play(self, *, faults: int | None = None, seconds: float | None = None) -> Result:
        """Play rounds until there were so many faults, or for so long; then audit."""
        began = time.monotonic()
        self._fleet.start_all()
        self._read_state("start", START_SECONDS)
        number = 0
        while not self._is_over(began, faults, seconds):
            number += 1
            self._play_round(number, next(self._rounds))
            if number == WARM_ROUNDS:
                self._measured = self._measure()
        self._audit()
        self.result.seconds = time.monotonic() - began
        return self.result

    def _is_over(self, began: float, faults: int | None, seconds: float | None) -> bool:
        if faults is not None and self.result.faults >= faults:
            return True
        return seconds is not None and time.monotonic() - began >= seconds

    def _play_round(self, number: int, faults: list[Fault]) -> None:
        """Begin all faults, hold them, end them, and have every process prove that it works."""
        self._latest = faults
        with ExitStack() as stack:
            for fault in faults:
                stack.enter_context(fault.begin(self._system))
            time.sleep(max(fault.seconds for fault in faults))
        self.result.faults += len(faults)
        note = self._servers.settle()
        names = ", ".join(fault.kind.name for fault in faults)
        seconds, slowest = self._read_state(names)
        now = time.strftime("%H:%M:%S")
        self._say(f"{now} {number:4} {self.result.faults:5} faults  {seconds:5.1f} s ({slowest})  {note}  {names}")

    def _read_state(self, what: str, seconds: float | None = None) -> tuple[float, str]:
        """Find processes that ended or do not answer; return how long the slowest took to answer, and its name."""
        for name in self._fleet.ended():
            self._violate("ended by itself", self._story(name, "ended by itself"))
        answered = self._probes.run(seconds) if seconds else self._probes.run()
        for name in [name for name, after in answered.items() if after is None]:
            self._violate("deaf", self._story(name, "does not work any more"))
            if name in self._fleet.names:
                self._fleet.replace(name)
        slowest = max((after or 0.0, name) for name, after in answered.items())
        self.result.recovery[what].append(slowest[0])
        return slowest

    def _story(self, name: str, text: str) -> str:
        faults = ", ".join(f"{fault.kind.name} (seed {fault.seed})" for fault in self._latest)
        state = "it runs" if name in self._fleet.names and self._fleet.is_running(name) else "it does not run"
        story = f"{name} {text} ({state}), after {self.result.faults} faults, the latest: {faults or 'none'}"
        if name not in self._fleet.names:
            return story
        if self._fleet.is_running(name):
            self._fleet.signal(name, signal.SIGUSR1)  # It writes the stacks of its threads.
            time.sleep(STACKS_SECONDS)
        tails = {kind: self._fleet.lines(name, kind)[-LOG_LINES:] for kind in ("log", "stderr", "answers")}
        tails["stacks"] = _busy_stacks(self._fleet.lines(name, "stacks"))
        return "\n    ".join([story, *(f"{kind}: {line}" for kind, lines in tails.items() for line in lines)])

    def _violate(self, name: str, story: str) -> None:
        self.result.violations[name].append(story)
        self._say(f"VIOLATION {name}: {story}")

    def _measure(self) -> dict[str, Measure]:
        return {name: self._fleet.measure(name) for name in LASTING}

    def _audit(self) -> None:
        """Stop producers and callers, let workers finish, and check everything."""
        after = self._measure()
        for name in self._fleet.names:
            if name.startswith(("producer", "caller")):
                self._fleet.kill(name)
        audit = Audit(self._servers, self._fleet, self._probes.client)
        audit.drain()
        self._say(audit.summary())
        checks = {
            "lost": audit.lost(),
            "doubled": audit.doubled(),
            "stuck": audit.stuck(),
            "disorder": audit.disordered(),
            "wrong answer": audit.wrong_answers(),
            "damage": audit.damaged(),
            "unhandled": audit.unhandled(),
            "leak": audit.grown(self._measured, after),
            "log volume": audit.noisy(self.result.faults),
        }
        for name, stories in checks.items():
            for story in stories:
                self._violate(name, story)


def _busy_stacks(lines: list[str]) -> list[str]:
    """Leave out threads that are not in pgjq's code."""
    stacks = "\n".join(lines).split("\n\n")
    return [line for stack in stacks if "/pgjq/" in stack for line in stack.splitlines()]


def _folder(directory: Path, name: str) -> Path:
    folder = directory / name
    folder.mkdir()
    folder.chmod(0o711)
    return folder
