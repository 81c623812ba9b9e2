"""Arguments and replies of enqueue.lua."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pgjq.definition import inherit
from pgjq.errors import ValidationError
from pgjq.job import EnqueueResult
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS
from pgjq.storage.redis import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.options import Settings, Submission

# A batch is one script, so that it is added whole or not at all; so many jobs keep Redis from serving other clients
# for about a second.
MOST: Final = 100_000


def arguments(jobs: Sequence[Submission], *, generated_ids: bool, awaited: bool = False) -> list[bytes]:
    """Write jobs as arguments: one JSON for everything but the payloads, which may be any bytes."""
    if len(jobs) > MOST:
        raise ValidationError(f"RedisStorage takes up to {MOST:,} jobs in one call, not {len(jobs):,}: make several")
    settings, which = _spread(jobs)
    request: dict[str, Any] = {
        "ids": [job.id for job in jobs],
        "settings": settings,
        "which": which,
        "generated_ids": generated_ids,
        "awaited": awaited,
    }
    if any(job.task is not None or job.headers is not None for job in jobs):
        request["tasks"] = [job.task for job in jobs]
        request["headers"] = [None if job.headers is None else json.dumps(dict(job.headers)) for job in jobs]
    return [rows.write(request), *(job.payload for job in jobs)]


def answers(jobs: Sequence[Submission], reply: Sequence[Any]) -> list[EnqueueResult]:
    """Return one result per job from the reply, which lists only the jobs that were not added."""
    results = [EnqueueResult("queued", job.id) for job in jobs]
    refused: list[tuple[int, Any, Any, str]] = json.loads(reply[0])[1]
    for (index, status, state, _), result in zip(refused, reply[1:], strict=True):
        value = None if result is None else result[1:]
        results[index] = EnqueueResult(status, jobs[index].id, state, value)
    return results


def number(reply: Sequence[Any]) -> str:
    """Return the number of a single job from the reply, whether it was added or found."""
    first, refused = json.loads(reply[0])
    return refused[0][3] if refused else first


def _spread(jobs: Sequence[Submission]) -> tuple[list[list[Any]], list[int] | None]:
    """Return the distinct settings and each job's 1-based index; None if all share one.

    Jobs with equal settings mostly share one object, so an identity check settles most batches.
    """
    first = jobs[0].settings
    if all(job.settings is first for job in jobs):
        return [_written(first)], None
    indexes: dict[Settings, int] = {}
    which = [indexes.setdefault(job.settings, len(indexes) + 1) for job in jobs]
    return [_written(settings) for settings in indexes], which


def _written(settings: Settings) -> list[Any]:
    """Write settings in the order of enqueue.lua."""
    settings = inherit(settings, {})
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
        rows.optional_micros(options.retention_seconds),
        rows.micros(DELETE_AFTER_SECONDS if keep is None else keep),
    ]
