"""Waiting for one job on Redis.

The wish to be told is a mark in the job's record. It goes in with the job, or is put on the one that is found, by the
script that enqueues; whoever ends a marked job publishes, in the same script, that it has ended, and how, unless that
is long. The job's number is its name here. A look sets the mark again if it is missing: a failover forgets marks as it
forgets everything else, and after one, as after any loss of the connection, everybody looks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pgjq.storage.redis import enqueue, rows
from pgjq.storage.result_waiter import MailboxWaiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.listener import Listener
    from pgjq.storage.redis.storage import Shared
    from pgjq.storage.redis.subscribers import Notice

    Enqueue = Callable[[str, Sequence[bytes]], Awaitable[Sequence[Any]]]
    Run = Callable[[str, str, bytes], Awaitable[Any]]


class RedisResultWaiter(MailboxWaiter):
    """One caller's wait for one job."""

    def __init__(
        self,
        job: tuple[str, str],
        box: Mailbox[Notice],
        answers: Listener,
        *,
        shared: Shared,
        enqueue: Enqueue,
        run: Run,
    ) -> None:
        super().__init__(box)
        self._queue, _ = self._subject = job
        self._answers = answers
        self._shared = shared
        self._enqueue = enqueue
        self._run = run
        self._seq: str | None = None

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue with the mark, or mark what is there."""
        reply = await self._enqueue(self._queue, enqueue.arguments([job], generated_ids=generated_id, awaited=True))
        (result,) = enqueue.answers([job], reply)
        self._seq = enqueue.number(reply)
        self._is_new = result.status == "queued"
        return result

    async def close(self) -> None:
        """Stop waiting."""
        self._box.close()
        self._answers.leave(self._subject, self._box)

    async def _look(self) -> Answer | None:
        found = await self._run("answer", self._queue, rows.write({"seq": self._seq}))
        return None if found is None else rows.answer(json.loads(found[0]), found[1])

    def _told(self, words: Sequence[Any]) -> Answer | None:
        """Believe what is said of a job that was added here. One that was found may have ended before, and lived on."""
        if self._seq is None or not self._is_new:
            return None
        answers = (rows.told(word, self._seq) for word in words if word is not None)
        return next((answer for answer in answers if answer is not None), None)

    @property
    def _hears(self) -> bool:
        """In a cluster word goes over links between its servers, which can fail without our noticing."""
        return not self._shared.unseen
