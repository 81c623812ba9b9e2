"""Waiting for one job on PostgreSQL.

The wish to be told is a mark on the job's row (`job.awaited`). It goes in with the job, or is put on a job that is
there already; whoever ends a marked job notifies in the same commit (ADR 12). The row's number is the job's name here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.storage.expectation import MailExpectation
from pgjq.storage.postgres import rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.listen import Listener, Notice, Topic
    from pgjq.storage.postgres.session import Rows

    Fetch = Callable[[str, dict[str, Any]], Awaitable[Rows]]
    Enqueue = Callable[[str, Submission], Awaitable[tuple[EnqueueResult, int | None]]]


class PostgresExpectation(MailExpectation):
    """One caller's wait for one job."""

    def __init__(self, topic: Topic, box: Mailbox[Notice], listener: Listener, fetch: Fetch, enqueue: Enqueue) -> None:
        super().__init__(box)
        self._topic = topic
        self._listener = listener
        self._fetch = fetch
        self._enqueue = enqueue
        self._seq: int | None = None

    async def enqueue(self, job: Submission, *, made_id: bool = False) -> EnqueueResult:
        """Enqueue with the mark, or mark what is there."""
        del made_id
        queue = self._topic.subject
        result, self._seq = await self._enqueue(queue, job)
        self._is_new = self._seq is not None
        if result.status == "duplicate":
            found = await self._fetch("want_answer", {"queue": queue, "id": job.id})
            self._seq = found[0][0] if found else None
        return result

    async def close(self) -> None:
        """Stop waiting."""
        self._box.close()
        self._listener.leave(self._topic, self._box)

    async def _look(self) -> Answer | None:
        if self._seq is None:
            return None
        found = await self._fetch("answer", {"queue": self._topic.subject, "seq": self._seq})
        return rows.answer(found[0]) if found else None

    @property
    def _hears(self) -> bool:
        return not self._listener.deaf
