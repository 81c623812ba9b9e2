"""Enqueue jobs by function calls, which every connection and role can make.

A call takes as many jobs as fit into a piece, and a larger batch is one transaction with several calls. A generated id
cannot be taken, so such a batch needs no deduplication: its pieces are inserted as they are.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pgjq.job import EnqueueResult
from pgjq.options import RESULT_TTL, Settings
from pgjq.storage import policy_errors
from pgjq.storage.postgres import array_literals, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.options import Submission
    from pgjq.storage.postgres.session import Rows, Session

# A piece: jobs, and bytes of payload, of which PostgreSQL takes a gigabyte in one value.
PIECE: Final = 5_000
PIECE_BYTES: Final = 2**25
AWAITED: Final = {"awaited": True}


async def enqueue(
    session: Session, queue: str, jobs: Sequence[Submission], *, generated_ids: bool
) -> list[EnqueueResult]:
    """Add jobs, all or none."""
    if len(jobs) == 1 and await _call_for_one(session, queue, jobs[0]) is not None:
        return [EnqueueResult("queued", jobs[0].id)]
    pieces = list(_pieces(jobs))
    if len(pieces) <= 1:
        refused = await _call(session, queue, jobs, generated_ids=generated_ids)
    else:
        async with session.transaction():
            call = _call_in_order if generated_ids else _call_in_order_of_ids
            refused = await call(session, queue, jobs)
    if not refused:
        return [EnqueueResult("queued", job.id) for job in jobs]
    return [refused.get(n) or EnqueueResult("queued", job.id) for n, job in enumerate(jobs)]


def _pieces(jobs: Sequence[Submission]) -> Iterator[slice]:
    """Cut a batch into pieces for one call each."""
    start = size = 0
    for n, job in enumerate(jobs):
        size += len(job.payload)
        if n > start and (n - start == PIECE or size > PIECE_BYTES):
            yield slice(start, n)
            start, size = n, len(job.payload)
    if jobs:
        yield slice(start, len(jobs))


async def enqueue_generated(
    session: Session, queue: str, jobs: Sequence[Submission]
) -> list[tuple[EnqueueResult, int | None]]:
    """Add jobs with generated ids and the mark `awaited`; return their numbers."""
    found = await session.fetch("enqueue", _batch(queue, jobs, awaited=True))
    answers = _refusals(jobs, found)
    seqs = {int(n) - 1: seq for n, *_, seq in found}
    return [(answers[n], seqs[n]) for n in range(len(jobs))]


async def enqueue_awaited(session: Session, queue: str, job: Submission) -> tuple[EnqueueResult, int | None]:
    """Add one job with the mark `awaited`; return its number, too, if it was added."""
    seq = await _call_for_one(session, queue, job, awaited=True)
    if seq is not None:
        return EnqueueResult("queued", job.id), seq
    # The id was taken at first sight, or a policy may refuse the job: the batch call decides.
    return (await enqueue_generated(session, queue, [job]))[0]


async def _call_for_one(session: Session, queue: str, job: Submission, *, awaited: bool = False) -> int | None:
    """Add one job if its id is free at first sight; return its number, or None if not added."""
    params = {
        "queue": queue,
        "id": job.id,
        "payload": job.payload,
        "settings": _job_json(job, awaited=awaited),
    }
    return (await session.fetch("enqueue_job", params))[0][0]


async def _call(
    session: Session,
    queue: str,
    jobs: Sequence[Submission],
    seqs: Sequence[int] | None = None,
    *,
    generated_ids: bool = False,
) -> dict[int, EnqueueResult]:
    """Call the function; return the results of the jobs that were not added, by index."""
    if not jobs:
        return {}
    return _refusals(jobs, await session.fetch("enqueue", _batch(queue, jobs, seqs, generated_ids=generated_ids)))


def _batch(
    queue: str,
    jobs: Sequence[Submission],
    seqs: Sequence[int] | None = None,
    *,
    awaited: bool = False,
    generated_ids: bool = False,
) -> dict[str, Any]:
    """Return a batch as the function's parameters; awaited jobs are returned with their numbers."""
    common, own = _split_settings(jobs)
    sizes = [len(job.payload) for job in jobs]
    return {
        "queue": queue,
        "ids": array_literals.texts(job.id for job in jobs),
        "payloads": b"".join([job.payload for job in jobs]),
        "starts": array_literals.numbers(accumulate(sizes[:-1], initial=1)),
        "sizes": array_literals.numbers(sizes),
        "common": json.dumps(common | AWAITED if awaited else common),
        "own": own,
        "seqs": None if seqs is None else array_literals.numbers(seqs),
        "numbered": awaited,
        "generated": generated_ids,
    }


async def _call_in_order(session: Session, queue: str, jobs: Sequence[Submission]) -> dict[int, EnqueueResult]:
    """Call the function piece by piece, in a transaction; all ids are new and ascend."""
    refused: dict[int, EnqueueResult] = {}
    for piece in _pieces(jobs):
        answers = await _call(session, queue, jobs[piece], generated_ids=True)
        refused |= {piece.start + n: answer for n, answer in answers.items()}
    return refused


async def _call_in_order_of_ids(session: Session, queue: str, jobs: Sequence[Submission]) -> dict[int, EnqueueResult]:
    """Call the function piece by piece, inside a transaction.

    The numbers are drawn first, in the order of the jobs. The pieces are sorted by id: the whole transaction takes its
    locks in the order of the ids, so two such calls cannot deadlock.
    """
    ((seqs,),) = await session.fetch("reserve_numbers", {"queue": queue, "count": len(jobs)})
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].id)
    ordered = [jobs[n] for n in order]
    refused: dict[int, EnqueueResult] = {}
    for piece in _pieces(ordered):
        part = order[piece]
        answers = await _call(session, queue, ordered[piece], [seqs[n] for n in part])
        refused |= {part[n]: answer for n, answer in answers.items()}
    return refused


def _split_settings(jobs: Sequence[Submission]) -> tuple[dict[str, Any], str | None]:
    """Split the jobs' settings into the most common ones and each other job's differences."""
    first = jobs[0]
    if all(job[2:] == first[2:] for job in jobs):  # All but id and payload.
        return set_values(first.settings) | _facts(first), None
    (usual, _), *_ = Counter(job.settings for job in jobs).most_common(1)
    nothing = dict.fromkeys(_SPOKEN)
    own = [(_facts(job) if job.settings == usual else nothing | _job_values(job)) or None for job in jobs]
    return set_values(usual), array_literals.objects(own)


_SPOKEN: Final = (
    "result_ttl",
    "max_attempts",
    "priority",
    "run_at",
    "delay",
    "singleton_key",
    "on_failed",
    "options",
    "singleton_seconds",
    "singleton_next_slot",
    "backoff",
    "task",
    "headers",
)


def _facts(job: Submission) -> dict[str, Any]:
    """Return what a job has beside its settings, as the function reads it."""
    facts: dict[str, Any] = {} if job.task is None else {"task": job.task}
    return facts if job.headers is None else facts | {"headers": dict(job.headers)}


def _job_values(job: Submission) -> dict[str, Any]:
    return set_values(job.settings) | _facts(job)


def set_values(settings: Settings) -> dict[str, Any]:
    """Return settings as the function reads them: only the ones that are set."""
    values: dict[str, Any] = {
        "result_ttl": None if settings.result_ttl == RESULT_TTL else settings.result_ttl,
        "max_attempts": settings.max_attempts,
        "priority": settings.priority or None,
        "run_at": None if settings.run_at is None else settings.run_at.isoformat(),
        "delay": settings.delay or None,
        "singleton_key": settings.singleton_key,
        "on_failed": None if settings.on_failed == "enqueue" else settings.on_failed,
        "options": settings.options.set_values() or None,
        "singleton_seconds": settings.singleton_seconds,
        "singleton_next_slot": settings.singleton_next_slot or None,
        "backoff": settings.backoff_by_default or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _job_json(job: Submission, *, awaited: bool) -> str:
    if job.headers is None:
        return _settings_json(job.settings, job.task, awaited=awaited)
    return json.dumps(_job_values(job) | (AWAITED if awaited else {}))


@functools.lru_cache(maxsize=1024)
def _settings_json(settings: Settings, task: str | None, *, awaited: bool) -> str:
    """Return settings as JSON; cached, because single enqueues mostly repeat them."""
    values = set_values(settings) if task is None else set_values(settings) | {"task": task}
    return json.dumps(values | AWAITED if awaited else values)


def _refusals(jobs: Sequence[Submission], refused: Rows) -> dict[int, EnqueueResult]:
    answers: dict[int, EnqueueResult] = {}
    for position, status, state, result, _ in refused:
        index = int(position) - 1
        if status == "needs_key":
            raise policy_errors.needs_key(jobs[index].id)
        if status == "no_dead_letter":
            raise policy_errors.no_dead_letter_queue(jobs[index].settings.options.dead_letter)
        existing = None if state is None else rows.state_name(state)
        answers[index] = EnqueueResult(status, jobs[index].id, existing, result)
    return answers
