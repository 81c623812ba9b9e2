"""Enqueue jobs: by one function call, or by COPY for many jobs with generated ids.

The function deduplicates and works on any connection. A generated id cannot be taken, so a batch of such jobs needs no
deduplication and is copied into the tables; the numbers that define the order of the jobs are drawn first. COPY needs
the right to insert into the tables. The producer role lacks it and calls the function.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from pgjq.definition import inherit
from pgjq.job import EnqueueResult
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS, RESULT_TTL, Settings
from pgjq.policy import Policy
from pgjq.storage import policy_errors
from pgjq.storage.postgres import array_literals, rows

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
    """Return the settings that all jobs share if they leave the jobs ready to run, else None."""
    first = jobs[0].settings if jobs else None
    if first is None or first.run_at is not None or first.delay > 0:
        return None
    if first.singleton_seconds is not None or first.options.dead_letter is not None:
        return None
    return first if all(job.settings is first for job in jobs) else None


async def enqueue_generated(
    session: Session, queue: str, jobs: Sequence[Submission]
) -> list[tuple[EnqueueResult, int | None]]:
    """Add jobs with generated ids and the mark `awaited`; return their numbers."""
    found = await session.fetch("enqueue", _batch(queue, jobs, awaited=True))
    answers = _refusals(jobs, found)
    seqs = {int(n) - 1: seq for n, *_, seq in found}
    return [(answers[n], seqs[n]) for n in range(len(jobs))]


async def _reserve(session: Session, queue: str, count: int) -> list[int]:
    return (await session.fetch("reserve_numbers", {"queue": queue, "count": count, "copying": False}))[0][3]


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
    session: Session, queue: str, jobs: Sequence[Submission], seqs: Sequence[int] | None
) -> dict[int, EnqueueResult]:
    """Call the function; return the results of the jobs that were not added, by index."""
    return _refusals(jobs, await session.fetch("enqueue", _batch(queue, jobs, seqs))) if jobs else {}


def _batch(
    queue: str, jobs: Sequence[Submission], seqs: Sequence[int] | None = None, *, awaited: bool = False
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
    }


async def _call_in_chunks(
    session: Session, queue: str, jobs: Sequence[Submission], seqs: Sequence[int]
) -> dict[int, EnqueueResult]:
    """Call the function chunk by chunk, inside a transaction.

    The numbers were drawn first, in the order of the jobs. The chunks are sorted by id: the whole transaction takes its
    locks in the order of the ids, so two such calls cannot deadlock.
    """
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].id)
    refused: dict[int, EnqueueResult] = {}
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        answers = await _call(session, queue, [jobs[n] for n in part], [seqs[n] for n in part])
        refused |= {part[n]: answer for n, answer in answers.items()}
    return refused


async def _copy(session: Session, queue: str, jobs: Sequence[Submission], shared: Settings) -> dict[int, EnqueueResult]:
    """COPY the jobs if the policy refuses none and the role allows it; else call the function."""
    async with session.transaction():
        reserved = await session.fetch("reserve_numbers", {"queue": queue, "count": len(jobs), "copying": True})
        queue_id, at, inherited, seqs, may_copy = reserved[0]
        if Policy.of_queue(queue_id).limits_keys or not may_copy:
            return await _call_in_chunks(session, queue, jobs, seqs)
        shared = inherit(shared, json.loads(inherited) if inherited else {})
        await session.copy("copy_body", _body_rows(jobs, queue_id, at, seqs, shared))
        await session.copy("copy_job", _job_rows(queue_id, at, seqs, shared))
        await session.fetch(
            "notify_copied_jobs", {"queue": queue, "queue_id": queue_id, "seqs": array_literals.numbers(seqs)}
        )
    return {}


def _body_rows(
    jobs: Sequence[Submission], queue_id: int, at: str, seqs: Sequence[int], shared: Settings
) -> Iterator[str]:
    options = shared.options.set_values()
    tail = f"{at}\t{_field(json.dumps(options)) if options else _NULL}"
    for start in range(0, len(jobs), CHUNK):
        part = zip(seqs[start : start + CHUNK], jobs[start : start + CHUNK], strict=True)
        yield "".join(
            [
                f"{seq}\t{queue_id}\t{job.id}\t\\\\x{job.payload.hex()}\t{tail}\t"
                f"{_NO_FACTS if job.task is None and job.headers is None else _copied_facts(job)}\n"
                for seq, job in part
            ]
        )


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
_NULL: Final = "\\N"
_NO_FACTS: Final = f"{_NULL}\t{_NULL}"


def _facts(job: Submission) -> dict[str, Any]:
    """Return what a job has beside its settings, as the function reads it."""
    facts: dict[str, Any] = {} if job.task is None else {"task": job.task}
    return facts if job.headers is None else facts | {"headers": dict(job.headers)}


def _copied_facts(job: Submission) -> str:
    """Return the fields of COPY for a job's task and headers."""
    headers = _NULL if job.headers is None else _field(json.dumps(dict(job.headers)))
    return f"{_NULL if job.task is None else _field(job.task)}\t{headers}"


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


def _field(text: str) -> str:
    """Return a field in COPY's text format."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
