"""Jobs on their way into Redis: as the arguments of enqueue.lua, and its answer as results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError
from pgjq.job import EnqueueResult
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS
from pgjq.storage.redis import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.options import Settings, Submission

# A batch is one script, so that all of it is added or nothing; Redis serves nobody else meanwhile, for about a second
# with so many.
MOST: Final = 100_000


def arguments(jobs: Sequence[Submission], *, generated_ids: bool, awaited: bool = False) -> list[bytes]:
    """Write jobs: what is text goes into one JSON, payloads may be any bytes."""
    if len(jobs) > MOST:
        raise ValidationError(f"RedisStorage takes up to {MOST:,} jobs in one call, not {len(jobs):,}: make several")
    settings, which = _spread(jobs)
    request = {
        "ids": [job.id for job in jobs],
        "settings": settings,
        "which": which,
        "made": generated_ids,
        "awaited": awaited,
    }
    return [rows.write(request), *(job.payload for job in jobs)]


def answers(jobs: Sequence[Submission], reply: Sequence[Any]) -> list[EnqueueResult]:
    """Read the answer, which tells of those jobs alone that were not added."""
    results = [EnqueueResult("queued", job.id) for job in jobs]
    refused: list[tuple[int, Any, Any, str]] = json.loads(reply[0])[1]
    for (index, status, state, _), result in zip(refused, reply[1:], strict=True):
        value = None if result is None else result[1:]
        results[index] = EnqueueResult(status, jobs[index].id, state, value)
    return results


def number(reply: Sequence[Any]) -> str:
    """Read from the answer for one job which number it has, be it new or found."""
    first, refused = json.loads(reply[0])
    return refused[0][3] if refused else first


def _spread(jobs: Sequence[Submission]) -> tuple[list[list[Any]], list[int] | None]:
    """List the settings that occur, and which of them is each job's, counted from one; None if it is always the first.

    Jobs with equal settings share one object, so most batches are told by looking at that.
    """
    first = jobs[0].settings
    if all(job.settings is first for job in jobs):
        return [_written(first)], None
    places: dict[Settings, int] = {}
    which = [places.setdefault(job.settings, len(places) + 1) for job in jobs]
    return [_written(settings) for settings in places], which


def _written(settings: Settings) -> list[Any]:
    """Write settings in the order of enqueue.lua."""
    options = settings.options
    kept = options.set_values()
    keep = options.delete_after_seconds
    return [
        settings.priority,
        settings.max_attempts or MAX_ATTEMPTS,
        rows.micros(settings.result_ttl),
        None if settings.run_at is None else rows.micros_at(settings.run_at),
        rows.micros(settings.delay),
        settings.singleton_key,
        settings.on_failed == "duplicate",
        json.dumps(kept) if kept else None,
        rows.some_micros(options.retention_seconds),
        rows.micros(DELETE_AFTER_SECONDS if keep is None else keep),
    ]
