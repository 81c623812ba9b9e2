"""Convert the scripts' arguments and replies. Times and durations are microseconds."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pgjq.job import Attempt, Event, JobError, JobStatus, QueueStats
from pgjq.options import NO_OPTIONS, JobOptions
from pgjq.storage.base import Answer, Claimed, Lease, Reaped
from pgjq.storage.workers import Registration, WorkerRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_OPTIONS: Final = {field.name for field in fields(JobOptions)}
SECOND: Final = 1_000_000
# The subject of every message of the events' channel; subjects of the other channels are queues or jobs.
EVERYTHING: Final = b""


def read_time(micros: bytes | str | float) -> datetime:
    """Read a time."""
    return _EPOCH + timedelta(microseconds=int(micros))


def to_datetime(micros: str | float | None) -> datetime | None:
    """Read a time; None stays None."""
    return None if micros is None else read_time(micros)


def micros_at(at: datetime) -> int:
    """Write a time."""
    return (at - _EPOCH) // _MICROSECOND


def micros(seconds: float) -> int:
    """Write a duration."""
    return round(seconds * SECOND)


def optional_micros(seconds: float | None) -> int | None:
    """Write a duration; None stays None."""
    return None if seconds is None else micros(seconds)


def claimed(queue: str, found: bytes, *blobs: bytes) -> list[Claimed]:
    """Read the jobs of claim.lua.

    The blobs are the payloads, one for each job, and then the checkpoints of the jobs that have one.
    """
    return [_claimed(queue, row, blobs[n], blobs) for n, row in enumerate(json.loads(found))]


def _claimed(queue: str, row: Sequence[Any], payload: bytes, blobs: Sequence[bytes]) -> Claimed:
    """Read one job. The lease's key is the job's number and the time of the claim, its token."""
    seq, job_id, number, token, attempts, max_attempts, created, lease_for, expire_for, options, at, *rest = row
    task, headers = rest
    return Claimed(
        Lease(queue, job_id, number, (seq, token)),
        payload,
        attempts,
        max_attempts,
        read_time(created),
        None if lease_for is None else int(lease_for) / SECOND,
        None if expire_for is None else int(expire_for) / SECOND,
        blobs[at] if at else None,
        _job_options(options) if options else NO_OPTIONS,
        task or None,
        json.loads(headers) if headers else None,
    )


def _job_options(stored: str) -> JobOptions:
    """Read a job's options, without those that only newer code knows."""
    return JobOptions(**{name: value for name, value in json.loads(stored).items() if name in _OPTIONS})


def statuses(queue: str, rows: bytes, outcomes: Sequence[bytes | None]) -> list[tuple[int, JobStatus]]:
    """Read the jobs of get, find and retry, each with its number; results stay bytes."""
    pairs = zip(json.loads(rows), outcomes, strict=True)
    return [(int(row[0]), _job_status(queue, row, outcome)) for row, outcome in pairs]


def _job_status(queue: str, row: Sequence[Any], outcome: bytes | None) -> JobStatus:
    (_, job_id, state, created, attempts, max_attempts, priority, *times, worker, lease, stalled, key) = row[:-3]
    stalled_on, task, headers = row[-3:]
    run_at, started_at, finished_at, locked_until = map(to_datetime, times)
    result, error = _outcome(outcome)
    return JobStatus(
        id=job_id,
        queue=queue,
        state=state,
        created_at=read_time(created),
        attempts=attempts,
        max_attempts=max_attempts,
        result=result,
        error=error,
        priority=priority,
        run_at=run_at,
        started_at=started_at,
        finished_at=finished_at,
        locked_until=locked_until,
        worker=worker or None,
        lease=lease,
        stalled=stalled,
        singleton_key=key or None,
        stalled_on=tuple(stalled_on),
        task=task or None,
        headers=json.loads(headers) if headers else None,
    )


def attempts(found: Sequence[bytes | None]) -> list[Attempt]:
    """Read the reply of attempts.lua; a run that goes on has none yet."""
    return [_attempt(json.loads(stored)) for stored in found if stored is not None]


def _attempt(row: Sequence[Any]) -> Attempt:
    number, worker, started, ended, outcome, error = row
    described = None if error is None else JobError(**json.loads(error))
    return Attempt(number, worker or None, read_time(started), read_time(ended), outcome, described)


def _outcome(stored: bytes | None) -> tuple[bytes | None, JobError | None]:
    """Read a stored outcome: a result, or the error of the last failure."""
    if stored is None:
        return None, None
    return (None, JobError(**json.loads(stored[1:]))) if stored.startswith(b"e") else (stored[1:], None)


def answer(facts: Sequence[Any], outcome: bytes | None) -> Answer:
    """Read the reply of job_state.lua."""
    state, attempts, max_attempts, expired = facts
    return Answer(state, attempts, max_attempts, *_outcome(outcome), expired)


def ended_jobs_in_message(notice: bytes) -> list[tuple[str, str]]:
    """Return the queue and the id of the ended job from a message of the answers' channel."""
    queue, job_id, _, _ = json.loads(notice.partition(b"\n")[0])
    return [(queue, job_id)]


def outcome_in_message(notice: bytes, wanted: str) -> Answer | None:
    """Return the outcome in a message of the answers' channel, if it is for this job number.

    A message has two lines: JSON, and the outcome, which may be any bytes.
    """
    head, _, outcome = notice.partition(b"\n")
    seq, facts = json.loads(head)[2:]
    return answer(facts, outcome or None) if facts and seq == wanted else None


def reaped(queue: str, found: bytes, payloads: Sequence[bytes]) -> list[tuple[int, int, Reaped]]:
    """Read the jobs of reap.lua with their deadlines and numbers; failed ones have payloads."""
    left = iter(payloads)
    return [
        (int(at), int(seq), Reaped(queue, *row, payload=next(left) if row[4] == "failed" else None, task=task or None))
        for at, seq, *row, task in json.loads(found)
    ]


def queue_stats(name: str, row: Sequence[Any]) -> QueueStats:
    """Read the reply of stats.lua."""
    queued, deferred, processing, failing, completed, failed, cancelled, age = row
    return QueueStats(
        name=name,
        queued=queued,
        deferred=deferred,
        ready=queued - deferred,
        processing=processing,
        failing=failing,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        total=queued + processing + failing + completed + failed + cancelled,
        oldest_ready_age=None if age is None else age / SECOND,
    )


def write_registration(registration: Registration) -> bytes:
    """Write a registration as the field of a hash."""
    return write(list(registration))


def worker_records(found: Sequence[bytes]) -> list[WorkerRecord]:
    """Read the hash of workers.lua."""
    return [_worker_record(*pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _worker_record(field: bytes, value: bytes) -> WorkerRecord:
    key, worker, queues, heartbeat = json.loads(field)
    started_at, last_seen = map(read_time, value.split())
    return WorkerRecord(Registration(key, worker, tuple(queues), heartbeat), started_at, last_seen)


def events(notice: bytes) -> list[Event]:
    """Read a message of the events' channel."""
    message = json.loads(notice)
    at = read_time(message["at"])
    return [_event(message["queue"], at, *facts) for facts in message["events"]]


def _event(queue: str, at: datetime, name: Any, job_id: str, attempts: int | None, *rest: Any) -> Event:
    count, action, reason, task = (*rest, None, None, None, None)[:4]
    return Event(name, queue, job_id, at, attempts=attempts, count=count, action=action, reason=reason, task=task)


def write_error(error: JobError) -> str:
    """Write an error as JSON."""
    return json.dumps({"type": error.type, "message": error.message, "traceback": error.traceback}, ensure_ascii=False)


def write(request: Any) -> bytes:
    """Write a request; lone surrogates, as in an error's text, become question marks."""
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
