"""Wait for one job of a model, by its number, which no other job ever has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pgjq.storage.model import commands, reads
from pgjq.storage.result_waiter import MailboxWaiter

if TYPE_CHECKING:
    from pgjq.blocking import Mode
    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.operations import Do
    from pgjq.storage.model.subscribers import Subscribers


class ModelResultWaiter(MailboxWaiter):
    """See `pgjq.storage.base.ResultWaiter`; `do` does an operation of the storage."""

    def __init__(self, do: Do, subscribers: Subscribers, mode: Mode, queue: str, job_id: str) -> None:
        super().__init__(subscribers.result_waiter((queue, job_id), mode))
        self._do = do
        self._subscribers = subscribers
        self._queue = queue
        self._id = job_id
        self._seq: int | None = None

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue or join the job, and keep its number."""
        del generated_id
        result, self._seq = await self._do(partial(self._enqueue, job=job))
        self._is_new = result.status == "queued"
        return result

    def _enqueue(self, jobs: Jobs, job: Submission) -> tuple[EnqueueResult, int | None]:
        (result,) = commands.enqueue(jobs, self._queue, [job])
        return result, self._current(jobs)

    async def join(self) -> bool:
        """Join the job that has the id, and keep its number."""
        self._seq = await self._do(self._current)
        return self._seq is not None

    def _current(self, jobs: Jobs) -> int | None:
        found = jobs.current(self._queue, self._id)
        return None if found is None else found.seq

    async def close(self) -> None:
        """Stop waiting."""
        self._subscribers.expect_no_more((self._queue, self._id), self._box)

    async def _read_state(self) -> Answer | None:
        return await self._do(partial(reads.answer, seq=self._seq))
