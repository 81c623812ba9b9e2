"""Wait on Redis: for a result, for events, for work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pgjq.storage.mailbox import Mailbox, MailboxSubscription
from pgjq.storage.redis import rows
from pgjq.storage.redis.result_waiter import RedisResultWaiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.blocking import Mode
    from pgjq.storage.base import Subscription
    from pgjq.storage.redis.queue_scripts import QueueScripts
    from pgjq.storage.redis.storage import Channels
    from pgjq.storage.redis.subscribers import Notice


class RedisWaiting:
    """The part of `RedisOperations` that a notification wakes."""

    _mode: Mode
    _channels: Channels
    _scripts: QueueScripts

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        box: Mailbox[Notice] = _Decoded(self._mode, queue)
        events = self._channels.events
        await events.subscribe(rows.EVERYTHING, box)
        return MailboxSubscription(box, lambda: events.leave(rows.EVERYTHING, box))  # pyright: ignore[reportArgumentType]

    async def result_waiter(self, queue: str, job_id: str) -> RedisResultWaiter:
        """See `Operations`."""
        job = queue, job_id
        box: Mailbox[Notice] = Mailbox(self._mode)
        await self._channels.answers.subscribe(job, box)
        return RedisResultWaiter(job, box, self._channels.answers, self._scripts)

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`: listens first, then checks for work, then sleeps."""
        box: Mailbox[Notice] = Mailbox(self._mode)
        subjects = [queue.encode() for queue in queues]
        until = time.monotonic() + timeout
        try:
            for subject in subjects:
                await self._channels.wakes.subscribe(subject, box)
            return await self._sleep(queues, box, until, poll)
        finally:
            for subject in subjects:
                self._channels.wakes.leave(subject, box)

    async def _sleep(self, queues: Sequence[str], box: Mailbox[Notice], until: float, poll: float) -> bool:
        while True:
            looks = [await self._scripts.run("peek", queue) for queue in queues]
            due = min((look / rows.SECOND for look in looks if look is not None), default=None)
            if due == 0:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if await box.take(min(left, poll, left if due is None else due)):
                return True


class _Decoded(Mailbox[Any]):
    """A mailbox that decodes messages into events, of one queue or of all."""

    def __init__(self, mode: Mode, queue: str | None) -> None:
        super().__init__(mode)
        self._queue = queue

    def put(self, item: Any) -> None:
        for event in () if item is None else rows.events(item):
            if self._queue in (None, event.queue):
                super().put(event)
