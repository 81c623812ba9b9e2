"""Wait on PostgreSQL: for a result, for events, for work."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from pgjq.errors import UnsupportedError
from pgjq.storage.mailbox import Mailbox, MailboxSubscription
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.mailboxes import ANSWERS, EVENTS, WAKE, Notice, Topic
from pgjq.storage.postgres.result_waiter import PostgresResultWaiter, ResultReads
from pgjq.storage.postgres.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.blocking import Mode
    from pgjq.job import Event
    from pgjq.storage.base import Subscription
    from pgjq.storage.postgres.listener import Listener

# A writer checks for sleeping workers when it enqueues, and commits later. A worker that finds such a writer when it
# falls asleep reads again: soon, as most commit at once, and then as often as the storage says.
WRITERS = 0.25
LOOK_AGAIN = (0.005, 0.02, 0.08)
# After as many polls without a job, which is a minute by default, a worker that is notified polls half as often.
LOOKS_OFTEN = 12
# A worker that has just run out of jobs pauses and reads once more before it registers as sleeping: else, at a rate of
# jobs that it can follow, a quarter of all commits would have to wake it. Where jobs come one at a time, a caller may
# wait for each of them, and waking the worker costs little; so it does not pause.
NAP = 0.01


class PostgresWaiting(Statements):
    """The part of `PostgresOperations` that a notification wakes."""

    _listener: Listener
    _result_reads: ResultReads
    _is_busy: bool  # The last claim that found jobs took more than one.

    async def result_waiter(self, queue: str, job_id: str) -> PostgresResultWaiter:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = Mailbox(self._mode)
        topic = Topic(ANSWERS, queue, job_id)
        if self._listener.note(topic, box):
            await self._run_blocking(lambda: self._listener.listen_for(topic, box))
        return PostgresResultWaiter(topic, box, self._listener, self._result_reads)

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = _Decoded(self._mode, queue)
        topic = Topic(EVENTS)
        await self._run_blocking(lambda: self._listener.subscribe(topic, box))
        if self._listener.behind_pooler:
            self._listener.leave(topic, box)
            raise UnsupportedError("events do not come through a transaction pooler; connect to the server directly")
        return MailboxSubscription(box, lambda: self._listener.leave(topic, box))  # pyright: ignore[reportArgumentType]

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = Mailbox(self._mode)
        topics = [Topic(WAKE, queue) for queue in queues]
        until = time.monotonic() + timeout
        if self._is_busy and (
            await self._has_work(queues) or await box.take(min(timeout, NAP)) or await self._has_work(queues)
        ):
            return True
        with self._listener.read_here(box) if self._mode == "async" else nullcontext():
            try:
                for topic in topics:
                    if self._listener.note(topic, box):
                        await self._run_blocking(lambda topic=topic: self._listener.listen_for(topic, box))
                return await self._sleep(queues, box, until, poll)
            finally:
                box.close()
                for topic in topics:
                    self._listener.leave(topic, box)

    async def _has_work(self, queues: Sequence[str]) -> bool:
        due = (await self._fetch("peek", {"queues": array_literals.texts(queues)}))[0][0]
        return due is not None and due <= 0

    async def _sleep(self, queues: Sequence[str], box: Mailbox[Notice], until: float, poll: float) -> bool:
        looks, soon = chain(repeat(poll, LOOKS_OFTEN), repeat(2 * poll)), iter(LOOK_AGAIN)
        while True:
            due = (await self._fetch("peek", {"queues": array_literals.texts(queues)}))[0][0]
            if due is not None and due <= 0:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if due is not None and due <= WRITERS:
                due = min(due, next(soon, due))
            look = poll if self._listener.behind_pooler else next(looks)
            if await box.take(min(left, look, left if due is None else due)):
                return True


class _Decoded(Mailbox[Any]):
    """A mailbox that receives notifications and holds their events, of one queue or of all."""

    def __init__(self, mode: Mode, queue: str | None) -> None:
        super().__init__(mode)
        self._queue = queue

    def put(self, item: Any) -> None:
        events: list[Event] = [] if item is None else rows.events(item)
        for event in events:
            if self._queue in (None, event.queue):
                super().put(event)
