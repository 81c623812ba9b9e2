"""Worker processes are killed and stopped at random moments of a busy queue: no job is lost, none is recorded twice."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

from pgjq import Client, FileStorage, NewJob
from pgjq.storage.file import replica
from pgjq.storage.file.lines import unseal
from tests.worker.crew import Crew

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KILLS, STOPS = 50, 5
WORKERS = 4
LOW, MORE = 50, 100


class Scene:
    """A queue that never runs dry."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.client = Client(FileStorage(directory))
        self.enqueued = 0

    def busy(self) -> None:
        """Let a random number of jobs be done, and keep the queue filled: trouble finds work to hit."""
        goal = self.client.get_queue_stats("q").completed + self.chance.randrange(12)
        while True:
            stats = self.client.get_queue_stats("q")
            if stats.ready < LOW:
                jobs = [NewJob(str(self.enqueued + n), None, max_attempts=1000) for n in range(MORE)]
                self.client.enqueue_many("q", jobs)
                self.enqueued += MORE
            if stats.completed >= goal:
                return
            time.sleep(0.002)

    def finish(self) -> None:
        """Wait for the last job; the suite's time-out is the limit."""
        while self.client.get_queue_stats("q").completed < self.enqueued:
            time.sleep(0.01)


def test_every_job_is_completed_whatever_happens_to_workers(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "LEAST", 50_000)  # So that this process writes the journal anew under way.
    seed = int(os.environ.get("PGJQ_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"PGJQ_TEST_SEED={seed}")  # noqa: T201
    scene = Scene(directory, seed)
    troubles = ["kill"] * KILLS + ["stop"] * STOPS
    scene.chance.shuffle(troubles)
    url = f"file://{directory}"
    with Crew() as crew:
        pids = [crew.start(url, handler) for handler in ("unhurried", "unhurried_async") * (WORKERS // 2)]
        for trouble in troubles:
            scene.busy()
            n = scene.chance.randrange(WORKERS)
            if trouble == "kill":
                crew.kill(pids[n])
                pids[n] = crew.start(url, scene.chance.choice(["unhurried", "unhurried_async"]))
            else:
                os.kill(pids[n], signal.SIGSTOP)
                time.sleep(scene.chance.uniform(0, 0.2))
                os.kill(pids[n], signal.SIGCONT)
        scene.finish()
        assert crew.complaints() == ""
    check(scene, directory)


def check(scene: Scene, directory: Path) -> None:
    """One record for each job, completed by its last run, and a journal that everybody reads alike."""
    jobs = scene.client.find_jobs("q", limit=10_000)
    assert sorted(int(job.id) for job in jobs) == list(range(scene.enqueued))
    assert all(job.state == "completed" and job.result == job.lease for job in jobs)
    scene.client.close()
    lines = [unseal(line) for line in (directory / "journal").read_bytes().splitlines()]
    assert None not in lines
    assert lines[0]
    assert lines[0]["generation"] > 1
    assert list((directory / "aside").iterdir()) == []
    with Client(FileStorage(directory)) as again:
        assert again.find_jobs("q", limit=10_000) == jobs
