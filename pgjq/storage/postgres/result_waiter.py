"""Waiting for one job on PostgreSQL.

The wish to be told is a mark on the job's row (`job.awaited`). It goes in with the job, or is put on a job that is
there already; whoever ends a marked job notifies in the same commit (ADR 12). The row's number is the job's name here.
A retry makes a new row, without the mark: a waiter that was notified of an end and finds the job alive marks it again.
Tasks that ask at the same time do so together. Only jobs with ids that were made here go in together: another one might
have to wait for somebody else's transaction with the same id, and all the others with it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pgjq.job import LIVE
from pgjq.storage.postgres import literals, rows
from pgjq.storage.postgres.batching import Batcher
from pgjq.storage.postgres.enqueue import enqueue_awaited, enqueue_generated
from pgjq.storage.result_waiter import MailboxWaiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pgjq.blocking import Mode
    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.listener import Listener, Notice, Topic
    from pgjq.storage.postgres.session import Rows, Session

    Fetch = Callable[[str, dict[str, Any]], Awaitable[Rows]]
    Repeated = Callable[[Callable[[Session], Awaitable[Any]]], Awaitable[Any]]
    Enqueued = tuple[EnqueueResult, int | None]

# While one batch waits for the disk, another may be on its way.
COMMITS = 2


class ResultReads:
    """What those who wait ask of the database, in one mode."""

    def __init__(self, mode: Mode, fetch: Fetch, repeated: Repeated) -> None:
        self._fetch = fetch
        self._repeated = repeated
        self._looks = Batcher[tuple[str, tuple[str, int]], "Answer | None"](mode, self._look)
        self._made = Batcher[tuple[str, "Submission"], "Enqueued"](mode, self._enqueue_generated, COMMITS)

    async def enqueue(self, queue: str, job: Submission, *, generated_id: bool) -> Enqueued:
        """Enqueue a job with the mark; return its number, if it was added."""
        if generated_id:
            return await self._made.do((queue, job))
        return await self._repeated(lambda session: enqueue_awaited(session, queue, job))

    async def join(self, queue: str, job_id: str) -> int | None:
        """Mark the job that has this id now, and return its number."""
        found = await self._fetch("want_answer", {"queue": queue, "id": job_id})
        return found[0][0] if found else None

    async def look(self, queue: str, job_id: str, seq: int) -> Answer | None:
        """Say how a job stands."""
        return await self._looks.do((queue, (job_id, seq)))

    async def _enqueue_generated(self, wishes: list[tuple[str, Submission]]) -> list[Enqueued]:
        if len(wishes) == 1:
            queue, job = wishes[0]
            return [await self._repeated(lambda session: enqueue_awaited(session, queue, job))]
        done: dict[str, Enqueued] = {}
        for queue, jobs in _by_queue(wishes).items():
            enqueued: list[Enqueued] = await self._repeated(
                lambda session, queue=queue, jobs=jobs: enqueue_generated(session, queue, jobs)
            )
            done |= {result.id: (result, seq) for result, seq in enqueued}
        return [done[job.id] for _, job in wishes]

    async def _look(self, wishes: list[tuple[str, tuple[str, int]]]) -> list[Answer | None]:
        found: dict[int, Answer] = {}
        for queue, jobs in _by_queue(wishes).items():
            ids, seqs = zip(*jobs, strict=True)
            wanted = {"queue": queue, "ids": literals.texts(ids), "seqs": literals.numbers(seqs)}
            found |= {row[0]: rows.answer(row) for row in await self._fetch("answer", wanted)}
        return [found.get(seq) for _, (_, seq) in wishes]


def _by_queue(wishes: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    sorted_out: defaultdict[str, list[Any]] = defaultdict(list)
    for queue, wish in wishes:
        sorted_out[queue].append(wish)
    return sorted_out


class PostgresResultWaiter(MailboxWaiter):
    """One caller's wait for one job."""

    def __init__(self, topic: Topic, box: Mailbox[Notice], listener: Listener, questions: ResultReads) -> None:
        super().__init__(box)
        self._topic = topic
        self._queue = topic.subject
        self._id = topic.job
        self._listener = listener
        self._questions = questions
        self._seq: int | None = None
        self._has_joined = False  # Marked just now: the next look needs no other mark.

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue with the mark, or mark what is there."""
        result, self._seq = await self._questions.enqueue(self._queue, job, generated_id=generated_id)
        self._is_new = self._seq is not None
        if result.status == "duplicate":
            self._seq = await self._questions.join(self._queue, self._id)
            self._has_joined = True
        return result

    async def close(self) -> None:
        """Stop waiting."""
        self._box.close()
        self._listener.leave(self._topic, self._box)

    async def _look(self) -> Answer | None:
        if self._seq is None:
            return None
        found = await self._questions.look(self._queue, self._id, self._seq)
        is_marked, self._has_joined = self._has_joined, False
        if found is None or found.state not in LIVE or is_marked or not self._hears:
            return found
        await self._questions.join(self._queue, self._id)
        return await self._questions.look(self._queue, self._id, self._seq)

    @property
    def _hears(self) -> bool:
        return not self._listener.deaf
