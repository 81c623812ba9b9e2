"""Wait for one job on PostgreSQL.

The waiter marks the job's row (`job.awaited`): the mark is inserted with the job, or set on a job that exists. The
transaction that ends a marked job notifies in the same commit (ADR 12). Here a job is identified by its row's number.
A retry creates a new row without the mark: a waiter that was notified of an end and finds the job alive marks it again.
Batchers merge concurrent requests. Only jobs with generated ids are enqueued as a batch: another id might have to wait
for a foreign transaction with the same id, and would delay the whole batch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pgjq.job import LIVE
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.batching import Batcher
from pgjq.storage.postgres.enqueue import enqueue_awaited, enqueue_generated
from pgjq.storage.postgres.statements import Statements
from pgjq.storage.result_waiter import MailboxWaiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.blocking import Mode
    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.listener import Listener
    from pgjq.storage.postgres.mailboxes import Notice, Topic
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries

    Enqueued = tuple[EnqueueResult, int | None]

# A second batch may be sent while the first waits for the disk.
COMMITS = 2


class ResultReads(Statements):
    """The statements that waiters of one mode run."""

    def __init__(self, mode: Mode, pool: Pool, queries: Queries) -> None:
        super().__init__(mode, pool, queries)
        self._state_reads = Batcher[tuple[str, tuple[str, int]], "Answer | None"](mode, self._read_state)
        self._enqueues = Batcher[tuple[str, "Submission"], "Enqueued"](mode, self._enqueue_generated, COMMITS)

    async def enqueue(self, queue: str, job: Submission, *, generated_id: bool) -> Enqueued:
        """Enqueue a job with the mark; return its number if it was added."""
        if generated_id:
            return await self._enqueues.do((queue, job))
        return await self._repeated(lambda session: enqueue_awaited(session, queue, job))

    async def join(self, queue: str, job_id: str) -> int | None:
        """Mark the job that has this id now, and return its number."""
        found = await self._fetch("mark_awaited", {"queue": queue, "id": job_id})
        return found[0][0] if found else None

    async def look(self, queue: str, job_id: str, seq: int) -> Answer | None:
        """Return the state of a job, or None if it is gone."""
        return await self._state_reads.do((queue, (job_id, seq)))

    async def _enqueue_generated(self, requests: list[tuple[str, Submission]]) -> list[Enqueued]:
        if len(requests) == 1:
            queue, job = requests[0]
            return [await self._repeated(lambda session: enqueue_awaited(session, queue, job))]
        done: dict[str, Enqueued] = {}
        for queue, jobs in _by_queue(requests).items():
            enqueued: list[Enqueued] = await self._repeated(
                lambda session, queue=queue, jobs=jobs: enqueue_generated(session, queue, jobs)
            )
            done |= {result.id: (result, seq) for result, seq in enqueued}
        return [done[job.id] for _, job in requests]

    async def _read_state(self, requests: list[tuple[str, tuple[str, int]]]) -> list[Answer | None]:
        found: dict[int, Answer] = {}
        for queue, jobs in _by_queue(requests).items():
            ids, seqs = zip(*jobs, strict=True)
            wanted = {"queue": queue, "ids": array_literals.texts(ids), "seqs": array_literals.numbers(seqs)}
            found |= {row[0]: rows.answer(row) for row in await self._fetch("job_state", wanted)}
        return [found.get(seq) for _, (_, seq) in requests]


def _by_queue(requests: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    by_queue: defaultdict[str, list[Any]] = defaultdict(list)
    for queue, request in requests:
        by_queue[queue].append(request)
    return by_queue


class PostgresResultWaiter(MailboxWaiter):
    """Wait of one caller for one job."""

    def __init__(self, topic: Topic, box: Mailbox[Notice], listener: Listener, reads: ResultReads) -> None:
        super().__init__(box)
        self._topic = topic
        self._queue = topic.subject
        self._id = topic.job
        self._listener = listener
        self._reads = reads
        self._seq: int | None = None
        self._has_joined = False  # Just marked: the next read needs no new mark.

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue with the mark, or mark the existing job."""
        result, self._seq = await self._reads.enqueue(self._queue, job, generated_id=generated_id)
        self._is_new = self._seq is not None
        if result.status == "duplicate":
            self._seq = await self._reads.join(self._queue, self._id)
            self._has_joined = True
        return result

    async def join(self) -> bool:
        """Mark the job that has the id now."""
        self._seq = await self._reads.join(self._queue, self._id)
        self._has_joined = True
        return self._seq is not None

    async def close(self) -> None:
        """Stop waiting."""
        self._box.close()
        self._listener.leave(self._topic, self._box)

    async def _read_state(self) -> Answer | None:
        if self._seq is None:
            return None
        found = await self._reads.look(self._queue, self._id, self._seq)
        is_marked, self._has_joined = self._has_joined, False
        if found is None or found.state not in LIVE or is_marked or not self._receives_notifications:
            return found
        await self._reads.join(self._queue, self._id)
        return await self._reads.look(self._queue, self._id, self._seq)

    @property
    def _receives_notifications(self) -> bool:
        return not self._listener.behind_pooler
