"""The harness of a conformance case: a storage in one mode, a clock, and short helpers."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pgjq.blocking import Mode, drive
from pgjq.job import JobError, JobStatus, NewJob
from pgjq.job_settings import settings
from pgjq.lease import LeasePolicy
from pgjq.options import Submission
from pgjq.outcome import Completed, Failed
from pgjq.storage.base import Claimed, Operations, Settlement, Storage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from pgjq.job import EnqueueResult, State
    from pgjq.outcome import Outcome
    from pgjq.testing.clock import Clock

R = TypeVar("R")

QUEUE = "mail"
BOOM = JobError("ValueError", "boom", "a traceback")


@dataclass
class Harness:
    """One case's storage, mode and clock."""

    storage: Storage
    clock: Clock
    mode: Mode
    ops: Operations = field(init=False)

    def __post_init__(self) -> None:
        self.ops = self.storage.operations(self.mode)

    def run(self, case: Coroutine[Any, Any, None]) -> None:
        """Run a case in this mode."""
        if self.mode == "sync":
            drive(case)
        else:
            asyncio.run(self._closing(case))

    async def _closing(self, case: Awaitable[None]) -> None:
        try:
            await case
        finally:
            await self.ops.close()

    async def together(self, count: int, call: Callable[[int], Coroutine[Any, Any, R]]) -> list[R]:
        """Make `count` calls at the same time: with threads in sync mode, with tasks in async mode."""
        if self.mode == "async":
            return await asyncio.gather(*(call(n) for n in range(count)))
        with ThreadPoolExecutor(count) as pool:
            running = [pool.submit(drive, call(n)) for n in range(count)]
            return [done.result() for done in running]

    async def enqueue(self, job_id: str, payload: bytes = b"1", queue: str = QUEUE, **options: Any) -> EnqueueResult:
        """Enqueue one job."""
        job = Submission(job_id, payload, settings(NewJob(job_id, None, **options)))
        (result,) = await self.ops.enqueue(queue, [job])
        return result

    async def enqueue_all(self, *ids: str) -> list[EnqueueResult]:
        """Enqueue jobs in one call."""
        usual = settings(NewJob(None, None))
        return await self.ops.enqueue(QUEUE, [Submission(job_id, b"1", usual) for job_id in ids])

    async def claim(self, limit: int = 10, queue: str = QUEUE, worker: str = "ann", **policy: Any) -> list[Claimed]:
        """Claim jobs of one queue."""
        return await self.ops.claim([queue], worker=worker, limit=limit, policy=LeasePolicy(**policy))

    async def claim_one(self, **policy: Any) -> Claimed:
        """Claim the only job that can be claimed."""
        (job,) = await self.claim(**policy)
        return job

    async def settle(self, job: Claimed, outcome: Outcome) -> State | None:
        """Settle one run and return the state that it led to."""
        (settled,) = await self.ops.settle([Settlement(job.lease, outcome)])
        return settled.state

    async def complete(self, job_id: str, result: bytes = b'"ok"', **options: Any) -> Claimed:
        """Enqueue a job and run it to completion."""
        await self.enqueue(job_id, **options)
        job = await self.claim_one()
        assert await self.settle(job, Completed(result)) == "completed"
        return job

    async def fail(self, job_id: str, **options: Any) -> Claimed:
        """Enqueue a job and fail it permanently."""
        await self.enqueue(job_id, **options)
        job = await self.claim_one()
        assert await self.settle(job, Failed(BOOM)) == "failed"
        return job

    async def status(self, job_id: str, queue: str = QUEUE) -> JobStatus:
        """Return the status of a job that must exist."""
        return (await self.ops.get(queue, [job_id]))[job_id]

    async def state(self, job_id: str) -> State:
        """Return a job's state."""
        return (await self.status(job_id)).state
