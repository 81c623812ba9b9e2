"""Proof after a fault: each worker runs a job of its own queue, each reaper reaps, producers and callers get answers.

Nothing but the process itself can answer its probe. A worker sleeps for longer than a probe waits if no notification
reaches it, so one that missed its wake-up is seen.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pgjq import Client, LeasePolicy, NewJob, PgjqError
from pgjq.blocking import drive
from tests.chaos.servers import REAPERS
from tests.chaos.spaces import ELECTION, MAIN, open_space, own_space

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage
    from tests.chaos.fleet import Fleet
    from tests.chaos.servers import Servers

PROBE_SECONDS = 20.0
LOOK_SECONDS = 0.05
LAPSED = LeasePolicy(lease=0.05, heartbeat=None)
PLANTED = "planted"


class Probes:
    """Asks every process of a fleet for a sign of work."""

    def __init__(self, servers: Servers, fleet: Fleet) -> None:
        self._fleet = fleet
        spaces = (MAIN, ELECTION, *map(own_space, REAPERS))
        self.storages: dict[str, Storage] = {space: open_space(servers.admin_address, space) for space in spaces}
        self.client = Client(self.storages[MAIN])
        self._count = 0

    def close(self) -> None:
        for storage in self.storages.values():
            storage.close()

    def run(self, seconds: float = PROBE_SECONDS) -> dict[str, float | None]:
        """Probe every process at once; return after how many seconds each answered, None for one that did not."""
        self._count += 1
        names = (*self._fleet.names, ELECTION)
        with ThreadPoolExecutor(len(names)) as threads:
            waits = {name: threads.submit(_wait, _Probe(self._probe(name)), seconds) for name in names}
            return {name: wait.result() for name, wait in waits.items()}

    def _probe(self, name: str) -> tuple[Callable[[], object], Callable[[], bool]]:
        """Return how to ask a process, and how to see its answer."""
        match name.partition("-")[0]:
            case "worker":
                return self._worker_probe(f"probe-{name}", str(self._count))
            case "reaper":
                return self._reaper_probe(own_space(name), f"{PLANTED}-{self._count}")
            case "producer":
                return self._file_probe(name, "acknowledged")
            case "caller":
                return self._file_probe(name, "answers", "right")
            case _:
                return self._reaper_probe(ELECTION, f"{PLANTED}-{self._count}")

    def _worker_probe(self, queue: str, job_id: str) -> tuple[Callable[[], object], Callable[[], bool]]:
        def is_done() -> bool:
            status = self.client.get_status(queue, job_id)
            return status is not None and status.state == "completed"

        return lambda: self.client.enqueue(queue, job_id, job_id), is_done

    def _reaper_probe(self, space: str, job_id: str) -> tuple[Callable[[], object], Callable[[], bool]]:
        """Have a worker that does not exist claim a job, with a lease that has lapsed by the time a reaper looks."""
        client, ops = Client(self.storages[space]), self.storages[space].operations("sync")

        def plant() -> None:
            client.enqueue_many(PLANTED, [NewJob(job_id, None, max_attempts=1)])
            drive(ops.claim([PLANTED], worker=PLANTED, limit=10, policy=LAPSED))

        def is_reaped() -> bool:
            status = client.get_status(PLANTED, job_id)
            return status is not None and status.state == "failed"

        return plant, is_reaped

    def _file_probe(self, name: str, kind: str, word: str = "") -> tuple[Callable[[], object], Callable[[], bool]]:
        size = self._fleet.size(name, kind)
        path = self._fleet.directory / f"{name}.{kind}"
        return lambda: None, lambda: path.exists() and word.encode() in path.read_bytes()[size:].strip() != b""


def _wait(probe: _Probe, seconds: float) -> float | None:
    """Wait for an answer. Time is counted in looks, so that a busy machine makes the wait longer, up to three times."""
    began, looks = time.monotonic(), 0.0
    while looks * LOOK_SECONDS < seconds and time.monotonic() < began + 3 * seconds:
        if probe.is_answered():
            return time.monotonic() - began
        looks += 1
        time.sleep(LOOK_SECONDS)
    return None


class _Probe:
    """A question that is asked until the storage takes it, and then looked after."""

    def __init__(self, probe: tuple[Callable[[], object], Callable[[], bool]]) -> None:
        self._ask, self._is_answered = probe
        self._asked = False

    def is_answered(self) -> bool:
        try:
            if not self._asked:
                self._ask()
                self._asked = True
            return self._is_answered()
        except PgjqError:  # The storage is away, for the harness as well.
            return False
