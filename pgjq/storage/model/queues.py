"""Queue definitions, and commands on many jobs at once.

`partition=True` is stored and changes nothing else in a model. Every error is raised before anything has changed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pgjq.definition import in_force
from pgjq.errors import PolicyError
from pgjq.options import Submission
from pgjq.storage import policy_errors
from pgjq.storage.base import SizeWarning
from pgjq.storage.model import commands, reads, runs
from pgjq.storage.model.admission import admit, check
from pgjq.storage.model.dead_letters import dead_letter_options
from pgjq.storage.model.jobs import WAITING
from pgjq.storage.model.queue_record import QueueRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgjq.definition import Definition
    from pgjq.job import QueueInfo
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record


def create(jobs: Jobs, name: str, definition: Definition) -> None:
    """Define a queue, unless it is defined."""
    _check_dead_letter(jobs, definition.options)
    known = jobs.queues.get(name)
    if known is not None:
        _check_same(jobs, name, known, definition)
        if known.defined:
            return
    jobs.define(name, replace(known or QueueRecord(jobs.now), definition=definition, defined=True))


def _check_same(jobs: Jobs, name: str, known: QueueRecord, definition: Definition) -> None:
    used = known.defined or jobs.of_queue(name) or _is_dead_letter(jobs, name)
    for what in ("policy", "partition"):
        if getattr(known.definition, what) != getattr(definition, what) and used:
            raise policy_errors.cannot_change(name, what)


def _is_dead_letter(jobs: Jobs, name: str) -> bool:
    return any(known.definition.options.get("dead_letter") == name for known in jobs.queues.values())


def update(jobs: Jobs, name: str, changes: Mapping[str, Any]) -> None:
    """Change a definition, for later jobs."""
    _check_dead_letter(jobs, changes)
    known = _get(jobs, name)
    options: dict[str, Any] = {**known.definition.options, **changes}
    size = options.pop("warning_queue_size", known.definition.warning_queue_size)
    options = {option: value for option, value in options.items() if value is not None}
    definition = replace(known.definition, warning_queue_size=size, options=options)
    jobs.define(name, replace(known, definition=definition, defined=True))


def delete(jobs: Jobs, name: str) -> None:
    """Delete a queue and all its jobs."""
    _get(jobs, name)
    for other, known in sorted(jobs.queues.items()):
        if known.definition.options.get("dead_letter") == name:
            raise policy_errors.is_dead_letter_of(name, other)
    jobs.remove_queue(name)


def show(jobs: Jobs, name: str | None) -> list[QueueInfo]:
    """List all queues, or one, if it exists."""
    return [
        in_force(queue, known.definition, created_at=known.created_at, paused=known.paused, stats=known.stats)
        for queue, known in sorted(jobs.queues.items())
        if name in (None, queue)
    ]


def warn(jobs: Jobs, name: str, **facts: Any) -> None:
    """Publish a warning about a job of a queue."""
    known = jobs.queues.get(name)
    if known is not None:
        jobs.define(name, known, "warning", facts)


def pause(jobs: Jobs, name: str, *, paused: bool) -> None:
    """Pause or resume a queue; claims skip a paused one."""
    known = _get(jobs, name)
    if known.paused != paused:
        jobs.define(name, replace(known, paused=paused))


def blocked_keys(jobs: Jobs, name: str) -> list[str]:
    """List the keys that failed jobs block."""
    _get(jobs, name)
    keys = jobs.keys(name)
    if keys is None or not keys.policy.is_strict:
        raise policy_errors.not_strict(name)
    return sorted(key for key in keys.blocked() if key is not None)


def observe(jobs: Jobs) -> list[SizeWarning]:
    """Store every queue's statistics; return the queues that newly exceed their warning size."""
    crossings: list[SizeWarning] = []
    for name, stats in reads.stats_of_all(jobs).items():
        known = jobs.queues[name]
        size, waiting = known.definition.warning_queue_size, stats.queued + stats.failing
        new = replace(known, stats=stats, warned=size is not None and waiting > size)
        if size is not None and new.warned and not known.warned:
            crossings.append(SizeWarning(name, waiting, size))
            jobs.define(name, new, "warning", {"count": waiting})
        elif new != known:
            jobs.define(name, new)
    return crossings


def cancel_many(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Cancel jobs that are not running."""
    found = [jobs.current(queue, job_id) for job_id in sorted(set(job_ids))]
    waiting = [record for record in found if record is not None and record.state in WAITING]
    for record in waiting:
        runs.end(jobs, record, "cancelled")
    return len(waiting)


def retry_many(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Queue failed or cancelled jobs again, if the policy has a slot for them."""
    return sum(_retry(jobs, queue, job_id) for job_id in sorted(set(job_ids)))


def _retry(jobs: Jobs, queue: str, job_id: str) -> bool:
    record = jobs.current(queue, job_id)
    if record is None or not commands.may_retry(jobs, record):
        return False
    commands.put_back(jobs, record)
    return True


def redrive(jobs: Jobs, queue: str, limit: int, to: str | None) -> int:
    """Send dead letters back to their queues, or to another one."""
    _get(jobs, queue)
    dead_letters = [r for r in jobs.of_queue(queue) if r.source is not None and r.state in WAITING]
    return len(list(islice((letter for letter in dead_letters if _send_back(jobs, letter, to)), limit)))


def _send_back(jobs: Jobs, letter: Record, to: str | None) -> bool:
    origin = _origin(jobs, letter, to)
    sent = _retry(jobs, origin.queue, origin.id) if origin is not None else _admit(jobs, *_returning(letter, to))
    if sent:
        jobs.forget(letter)
    return sent


def _admit(jobs: Jobs, queue: str, job: Submission) -> bool:
    try:
        check(jobs, queue, job)
    except PolicyError:
        return False
    return admit(jobs, queue, job).status == "queued"


def _origin(jobs: Jobs, letter: Record, to: str | None) -> Record | None:
    """Find the job that a dead letter is a copy of, if it can be retried where it is."""
    source = letter.source
    origin = None if to is not None or source is None else jobs.current(source.queue, source.id)
    return origin if origin is not None and origin.state in ("failed", "cancelled") else None


def _returning(letter: Record, to: str | None) -> tuple[str, Submission]:
    source, settings = letter.source, letter.settings
    if source is None:
        raise AssertionError(letter)
    settings = replace(settings, options=dead_letter_options(settings.options), run_at=None, delay=0.0)
    return to or source.queue, Submission(source.id, letter.payload, settings, letter.task, letter.headers)


def _get(jobs: Jobs, name: str) -> QueueRecord:
    known = jobs.queues.get(name)
    if known is None:
        raise policy_errors.no_queue(name)
    return known


def _check_dead_letter(jobs: Jobs, options: Mapping[str, Any]) -> None:
    dead_letter = options.get("dead_letter")
    if dead_letter is not None and dead_letter not in jobs.queues:
        raise policy_errors.no_dead_letter_queue(dead_letter)
