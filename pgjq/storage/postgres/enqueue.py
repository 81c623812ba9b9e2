"""Putting jobs in: by one function call, or, for many jobs with ids that were just made, by COPY.

The function deduplicates and works on any connection. A made id cannot be taken, so a batch of those needs no
deduplication and is copied straight into the tables; the numbers that give the jobs their order are drawn first. COPY
needs the right to insert into the tables, which the role of a producer does not have: it calls the function.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pgjq.definition import inherit
from pgjq.errors import PolicyError, QueueNotFoundError
from pgjq.job import EnqueueResult
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS, Settings
from pgjq.storage.postgres import literals, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.options import Submission
    from pgjq.storage.postgres.session import Rows, Session

CHUNK: Final = 5_000
COPY_FROM: Final = 100
AWAITED: Final = {"awaited": True}


async def enqueue(
    session: Session, queue: str, jobs: Sequence[Submission], *, generated_ids: bool
) -> list[EnqueueResult]:
    """Add jobs, all or none."""
    shared = _shared_settings(jobs)
    if generated_ids and session.can_copy and len(jobs) >= COPY_FROM and shared is not None:
        refused = await _copy(session, queue, jobs, shared)
        return [refused.get(n) or EnqueueResult("queued", job.id) for n, job in enumerate(jobs)]
    if len(jobs) == 1 and await _call_for_one(session, queue, jobs[0]) is not None:
        return [EnqueueResult("queued", jobs[0].id)]
    if len(jobs) <= CHUNK:
        refused = await _call(session, queue, jobs, None)
    else:
        async with session.transaction():
            refused = await _call_in_chunks(session, queue, jobs, await _reserve(session, queue, len(jobs)))
    if not refused:
        return [EnqueueResult("queued", job.id) for job in jobs]
    return [refused.get(n) or EnqueueResult("queued", job.id) for n, job in enumerate(jobs)]


def _shared_settings(jobs: Sequence[Submission]) -> Settings | None:
    """Return the settings that all the jobs share and that leave them ready to run, if so."""
    first = jobs[0].settings if jobs else None
    if first is None or first.run_at is not None or first.delay > 0:
        return None
    if first.singleton_seconds is not None or first.options.dead_letter is not None:
        return None
    return first if all(job.settings is first for job in jobs) else None


async def enqueue_generated(
    session: Session, queue: str, jobs: Sequence[Submission]
) -> list[tuple[EnqueueResult, int | None]]:
    """Add jobs whose ids were made a moment ago, with the mark that somebody waits for them; return their numbers."""
    found = await session.fetch("enqueue", _batch(queue, jobs, awaited=True))
    answers = _answers(jobs, found)
    seqs = {int(n) - 1: seq for n, *_, seq in found}
    return [(answers[n], seqs[n]) for n in range(len(jobs))]


async def _reserve(session: Session, queue: str, count: int) -> list[int]:
    return (await session.fetch("reserve", {"queue": queue, "count": count, "copying": False}))[0][3]


async def enqueue_awaited(session: Session, queue: str, job: Submission) -> tuple[EnqueueResult, int | None]:
    """Add one job with the mark that somebody waits for it; return its number, too, if it was added."""
    seq = await _call_for_one(session, queue, job, awaited=True)
    if seq is not None:
        return EnqueueResult("queued", job.id), seq
    # Not free at first sight, and perhaps free at the second.
    return (await enqueue_generated(session, queue, [job]))[0]


async def _call_for_one(session: Session, queue: str, job: Submission, *, awaited: bool = False) -> int | None:
    """Add one job if its id is free at first sight, and return its number; a taken one is looked at as a batch."""
    params = {
        "queue": queue,
        "id": job.id,
        "payload": f"\\x{job.payload.hex()}",
        "settings": _written(job.settings, awaited=awaited),
    }
    return (await session.fetch("enqueue_job", params))[0][0]


async def _call(
    session: Session, queue: str, jobs: Sequence[Submission], seqs: Sequence[int] | None
) -> dict[int, EnqueueResult]:
    """Call the function; answer for those that were not added, by their index."""
    return _answers(jobs, await session.fetch("enqueue", _batch(queue, jobs, seqs))) if jobs else {}


def _batch(
    queue: str, jobs: Sequence[Submission], seqs: Sequence[int] | None = None, *, awaited: bool = False
) -> dict[str, Any]:
    """Write a batch as the function reads it; the numbers of awaited jobs are to be known."""
    common, own = _spread(jobs)
    return {
        "queue": queue,
        "ids": literals.texts(job.id for job in jobs),
        "payloads": literals.blobs(job.payload for job in jobs),
        "common": json.dumps(common | AWAITED if awaited else common),
        "own": own,
        "seqs": None if seqs is None else literals.numbers(seqs),
        "numbered": awaited,
    }


async def _call_in_chunks(
    session: Session, queue: str, jobs: Sequence[Submission], seqs: Sequence[int]
) -> dict[int, EnqueueResult]:
    """Call the function chunk by chunk, inside a transaction.

    The numbers were drawn first, in the order of the jobs. The chunks then go by id: in all of the transaction, locks
    are taken in the order of the ids, and two such calls cannot deadlock.
    """
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].id)
    refused: dict[int, EnqueueResult] = {}
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        answers = await _call(session, queue, [jobs[n] for n in part], [seqs[n] for n in part])
        refused |= {part[n]: answer for n, answer in answers.items()}
    return refused


async def _copy(session: Session, queue: str, jobs: Sequence[Submission], shared: Settings) -> dict[int, EnqueueResult]:
    """Copy the jobs, if the queue's policy cannot refuse any of them and we may; else call the function."""
    async with session.transaction():
        reserved = await session.fetch("reserve", {"queue": queue, "count": len(jobs), "copying": True})
        queue_id, at, inherited, seqs, may_copy = reserved[0]
        if queue_id & 7 or not may_copy:
            return await _call_in_chunks(session, queue, jobs, seqs)
        shared = inherit(shared, json.loads(inherited) if inherited else {})
        await session.copy("copy_body", _body_rows(jobs, queue_id, at, seqs, shared))
        await session.copy("copy_job", _job_rows(queue_id, at, seqs, shared))
        await session.fetch("announce", {"queue": queue, "queue_id": queue_id, "seqs": literals.numbers(seqs)})
    return {}


def _body_rows(
    jobs: Sequence[Submission], queue_id: int, at: str, seqs: Sequence[int], shared: Settings
) -> Iterator[str]:
    options = shared.options.set_values()
    tail = f"{at}\t{_field(json.dumps(options)) if options else _NULL}\n"
    for start in range(0, len(jobs), CHUNK):
        part = zip(seqs[start : start + CHUNK], jobs[start : start + CHUNK], strict=True)
        yield "".join([f"{seq}\t{queue_id}\t{job.id}\t\\\\x{job.payload.hex()}\t{tail}" for seq, job in part])


def _job_rows(queue_id: int, at: str, seqs: Sequence[int], shared: Settings) -> Iterator[str]:
    key = _NULL if shared.singleton_key is None else _field(shared.singleton_key)
    keep = shared.options.delete_after_seconds
    tail = "\t".join(
        str(value)
        for value in (
            queue_id,
            at,
            "t",
            -shared.priority,
            shared.max_attempts or MAX_ATTEMPTS,
            shared.result_ttl,
            DELETE_AFTER_SECONDS if keep is None else keep,
            key,
        )
    )
    for start in range(0, len(seqs), CHUNK):
        yield "".join([f"{seq}\t{tail}\n" for seq in seqs[start : start + CHUNK]])


def _spread(jobs: Sequence[Submission]) -> tuple[dict[str, Any], str | None]:
    """Split the jobs' settings into what most of them share and what the others differ in."""
    if all(job.settings is jobs[0].settings for job in jobs):
        return _spoken(jobs[0].settings), None
    (usual, _), *_ = Counter(job.settings for job in jobs).most_common(1)
    nothing = dict.fromkeys(_SPOKEN)
    own = [None if job.settings == usual else nothing | _spoken(job.settings) for job in jobs]
    return _spoken(usual), literals.objects(own)


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
)
_NULL: Final = "\\N"


def _spoken(settings: Settings) -> dict[str, Any]:
    """Write settings as the function reads them: only what was set."""
    values: dict[str, Any] = {
        "result_ttl": settings.result_ttl,
        "max_attempts": settings.max_attempts,
        "priority": settings.priority or None,
        "run_at": None if settings.run_at is None else settings.run_at.isoformat(),
        "delay": settings.delay or None,
        "singleton_key": settings.singleton_key,
        "on_failed": None if settings.on_failed == "enqueue" else settings.on_failed,
        "options": settings.options.set_values() or None,
        "singleton_seconds": settings.singleton_seconds,
        "singleton_next_slot": settings.singleton_next_slot or None,
    }
    return {name: value for name, value in values.items() if value is not None}


@functools.lru_cache(maxsize=1024)
def _written(settings: Settings, *, awaited: bool = False) -> str:
    """Write settings as text; callers who enqueue one job at a time mostly bring the same ones."""
    return json.dumps(_spoken(settings) | AWAITED if awaited else _spoken(settings))


def _answers(jobs: Sequence[Submission], refused: Rows) -> dict[int, EnqueueResult]:
    answers: dict[int, EnqueueResult] = {}
    for position, status, state, result, _ in refused:
        index = int(position) - 1
        if status == "needs_key":
            raise PolicyError(f"job {jobs[index].id!r} needs a singleton_key: its queue keeps each key in strict order")
        if status == "no_dead_letter":
            raise QueueNotFoundError(f"there is no queue {jobs[index].settings.options.dead_letter!r} for dead letters")
        existing = None if state is None else rows.state_name(state)
        answers[index] = EnqueueResult(status, jobs[index].id, existing, result)
    return answers


def _field(text: str) -> str:
    """Write a field of COPY's text format."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
