"""Wait for one job's result on Redis.

* enqueue.lua sets the mark `AWAITED` in the job's record, whether it adds the job or finds it. The script that ends a
  marked job also publishes that it has ended, with the outcome unless that is long.
* The waiter knows the job by its number, which no other job has.
* Reading the job sets a missing mark again: a failover may lose marks like any other write. After one, as after any
  loss of the connection, every waiter reads its job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pgjq.storage.redis import enqueue, rows
from pgjq.storage.result_waiter import MailboxWaiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.listener import Listener
    from pgjq.storage.redis.queue_scripts import QueueScripts
    from pgjq.storage.redis.subscribers import Notice


class RedisResultWaiter(MailboxWaiter):
    """Waits for one job, for one caller."""

    def __init__(self, job: tuple[str, str], box: Mailbox[Notice], answers: Listener, scripts: QueueScripts) -> None:
        super().__init__(box)
        self._queue, _ = self._subject = job
        self._answers = answers
        self._scripts = scripts
        self._seq: str | None = None

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue a marked job, or mark the job that has the id."""
        reply = await self._scripts.enqueue(
            self._queue, enqueue.arguments([job], generated_ids=generated_id, awaited=True)
        )
        (result,) = enqueue.answers([job], reply)
        self._seq = enqueue.number(reply)
        self._is_new = result.status == "queued"
        return result

    async def join(self) -> bool:
        """Mark the job that has the id now."""
        found = await self._scripts.run("job_state", self._queue, rows.write({"id": self._subject[1]}))
        self._seq = None if found is None else found[2].decode()
        return found is not None

    async def close(self) -> None:
        """Stop waiting."""
        self._box.close()
        self._answers.leave(self._subject, self._box)

    async def _read_state(self) -> Answer | None:
        found = await self._scripts.run("job_state", self._queue, rows.write({"seq": self._seq}))
        return None if found is None else rows.answer(json.loads(found[0]), found[1])

    def _result_from(self, notifications: Sequence[Any]) -> Answer | None:
        """Return the outcome from a notification, if this waiter added the job.

        A job that it found may have ended before and been retried since.
        """
        if self._seq is None or not self._is_new:
            return None
        answers = (rows.outcome_in_message(message, self._seq) for message in notifications if message is not None)
        return next((answer for answer in answers if answer is not None), None)

    @property
    def _receives_notifications(self) -> bool:
        """Whether notifications arrive; in a cluster a link between servers can fail unnoticed."""
        return not self._scripts.shared.publish_uncounted
