"""A sequence of storage operations, and everything a reader can see of the jobs after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq import JobError, LeasePolicy, NewJob
from pgjq.blocking import drive
from pgjq.job_settings import settings
from pgjq.options import JobFilter, Submission
from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage
    from pgjq.testing import ManualClock

QUEUE = "mail/../../etc"
POLICY = LeasePolicy(lease=30, heartbeat=10)
BOOM = JobError("ValueError", "boom \udcff", None)


class Operations:
    """The steps; each is one operation of the port."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock
        self.ops = storage.operations("sync")
        self.held: list[Any] = []
        self.steps: list[Callable[[], Any]] = [
            lambda: self.enqueue("a", "b", "c"),
            lambda: self.claim(2),
            lambda: self.settle((self.held[0], Completed(b"\xff result")), (self.held[1], Failing(BOOM))),
            lambda: drive(self.ops.cancel(QUEUE, "c")),
            lambda: self.claim(1),
            lambda: drive(self.ops.save_checkpoint(self.held[0].lease, b"half")),
            lambda: drive(self.ops.heartbeat([self.held[0].lease])),
            lambda: self.settle((self.held[0], Released())),
            lambda: drive(self.ops.retry(QUEUE, "c")),
            lambda: self.claim(2),
            lambda: self.settle((self.held[0], Failed(BOOM))),
            self.stall,
            lambda: self.enqueue("b", "d", "a"),
            lambda: drive(self.ops.elect("reaper", "ann", ttl=30)) if storage.capabilities.leader_election else None,
            lambda: drive(self.ops.resign("reaper", "ann")) if storage.capabilities.leader_election else None,
            lambda: drive(self.ops.delete(QUEUE, ["d"])),
        ]

    def enqueue(self, *ids: str) -> None:
        usual = settings(NewJob(None, None))
        drive(self.ops.enqueue(QUEUE, [Submission(job_id, job_id.encode(), usual) for job_id in ids]))

    def claim(self, limit: int) -> None:
        self.held = drive(self.ops.claim([QUEUE], worker="ann", limit=limit, policy=POLICY))

    def settle(self, *outcomes: Any) -> None:
        drive(self.ops.settle([Settlement(job.lease, outcome) for job, outcome in outcomes]))

    def stall(self) -> None:
        self.clock.advance(31)
        drive(self.ops.reap())

    def look(self) -> Any:
        """Everything that can be seen of the jobs."""
        return look(self.storage)


def look(storage: Storage) -> Any:
    return drive(storage.operations("sync").find(JobFilter()))[0]
