"""Workers are killed and stopped, and the server restarted, at random moments of a busy queue: no job is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

from pgjq import Client, NewJob, RedisStorage
from tests.worker.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.redis_server import RedisServer

TIMES = 50
STOPS = 3
RESTARTS = 2
WORKERS = 4
LOW = 100
MORE = 200
QUEUE = "q"


class Scene:
    """A queue that never runs dry, a crew that works on it, and a chance of one's own."""

    def __init__(self, server: RedisServer, storage: RedisStorage, crew: Crew, seed: int) -> None:
        self.server = server
        self.client = Client(storage)
        self.crew = crew
        self.chance = random.Random(seed)  # noqa: S311
        self.enqueued = 0
        self.pids = [self._start(n) for n in range(WORKERS)]

    def kill(self) -> None:
        """Kill one, and start another in its place."""
        n = self.chance.randrange(WORKERS)
        self.crew.kill(self.pids[n])
        self.pids[n] = self._start(n)

    def stop(self) -> None:
        """Stop one past its lease, and let it go on: it believes in leases that are somebody else's."""
        pid = self.chance.choice(self.pids)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.65, 0.8))
        os.kill(pid, signal.SIGCONT)

    def busy(self) -> None:
        """Let some more jobs be done, and keep the queue filled: trouble finds work to hit."""
        goal = self.client.get_queue_stats(QUEUE).completed + self.chance.randrange(6)
        while (stats := self.client.get_queue_stats(QUEUE)).completed < goal:
            if stats.ready < LOW:
                jobs = [NewJob(str(self.enqueued + n), None, max_attempts=1000) for n in range(MORE)]
                self.client.enqueue_many(QUEUE, jobs)
                self.enqueued += MORE
            time.sleep(0.002)

    def finish(self) -> None:
        """Wait for the last job; the suite's time-out is the limit."""
        while self.client.get_queue_stats(QUEUE).completed < self.enqueued:
            time.sleep(0.01)

    def check(self) -> None:
        """Every job has completed once, by the run that the record names: a result is the lease it was made under."""
        stats = self.client.get_queue_stats(QUEUE)
        assert (stats.total, stats.completed) == (self.enqueued, self.enqueued)
        found, after = [], 0
        while after is not None:
            page = self.client.find_jobs(QUEUE, after=after, limit=5_000)
            found, after = found + page, page.next
        assert {job.id for job in found} == {str(n) for n in range(self.enqueued)}
        assert all(job.result == job.lease for job in found)

    def _start(self, n: int) -> int:
        return self.crew.start(self.server.url, ("plain", "plain_async")[n % 2], QUEUE)


def test_no_job_is_lost_whatever_happens_to_workers_and_to_the_server(
    redis_server: RedisServer, storage: RedisStorage, request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("PGJQ_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"PGJQ_TEST_SEED={seed} for {request.node.name}")  # noqa: T201
    with Crew() as crew:
        scene = Scene(redis_server, storage, crew, seed)
        troubles: list[Callable[[], None]] = (
            [scene.kill] * TIMES + [scene.stop] * STOPS + [redis_server.restart] * RESTARTS
        )
        scene.chance.shuffle(troubles)
        for trouble in troubles:
            scene.busy()
            trouble()
        scene.finish()
        assert crew.complaints() == ""
        scene.check()
