"""What scripts answer becomes values. Points in time and durations travel as microseconds."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pgjq.job import Event, JobError, JobStatus, QueueStats
from pgjq.options import NO_OPTIONS, JobOptions
from pgjq.storage.base import Answer, Claimed, Lease, Reaped
from pgjq.storage.workers import Registration, WorkerRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_OPTIONS: Final = {field.name for field in fields(JobOptions)}
SECOND: Final = 1_000_000
# What every message of the events' channel is about; those of the others are about queues, or jobs.
EVERYTHING: Final = b""


def read_time(micros: bytes | str | float) -> datetime:
    """Read a point in time."""
    return _EPOCH + timedelta(microseconds=int(micros))


def to_datetime(micros: str | float | None) -> datetime | None:
    """Read a point in time, if there is one."""
    return None if micros is None else read_time(micros)


def micros_at(at: datetime) -> int:
    """Write a point in time."""
    return (at - _EPOCH) // _MICROSECOND


def micros(seconds: float) -> int:
    """Write a duration."""
    return round(seconds * SECOND)


def some_micros(seconds: float | None) -> int | None:
    """Write a duration, if there is one."""
    return None if seconds is None else micros(seconds)


def claimed(queue: str, found: bytes, *blobs: bytes) -> list[Claimed]:
    """Read the jobs of claim.lua. Payloads come first, one for each job; then checkpoints, of those that have one."""
    return [_claimed(queue, row, blobs[n], blobs) for n, row in enumerate(json.loads(found))]


def _claimed(queue: str, row: Sequence[Any], payload: bytes, blobs: Sequence[bytes]) -> Claimed:
    """Read one job. A lease's key is what scripts know it by: the job's number, and the claim's moment."""
    seq, job_id, number, token, attempts, max_attempts, created, lease_for, expire_for, options, at = row
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
    )


def _job_options(stored: str) -> JobOptions:
    """Read what a job brings along; what newer code may have written beside it is passed over."""
    return JobOptions(**{name: value for name, value in json.loads(stored).items() if name in _OPTIONS})


def statuses(queue: str, rows: bytes, outcomes: Sequence[bytes | None]) -> list[tuple[int, JobStatus]]:
    """Read jobs of get.lua and its like, each with its number; results stay bytes."""
    pairs = zip(json.loads(rows), outcomes, strict=True)
    return [(int(row[0]), _job_status(queue, row, outcome)) for row, outcome in pairs]


def _job_status(queue: str, row: Sequence[Any], outcome: bytes | None) -> JobStatus:
    (_, job_id, state, created, attempts, max_attempts, priority, *times, worker, lease, stalled, key, stalled_on) = row
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
    )


def _outcome(stored: bytes | None) -> tuple[bytes | None, JobError | None]:
    """Read what is kept of how a job ended, or last failed: a result, or an error."""
    if stored is None:
        return None, None
    return (None, JobError(**json.loads(stored[1:]))) if stored.startswith(b"e") else (stored[1:], None)


def answer(facts: Sequence[Any], outcome: bytes | None) -> Answer:
    """Read how a job stands."""
    state, attempts, max_attempts, expired = facts
    return Answer(state, attempts, max_attempts, *_outcome(outcome), expired)


def answered(notice: bytes) -> list[tuple[str, str]]:
    """Read from a message of the answers' channel which job has ended: its queue and its id."""
    queue, job_id, _, _ = json.loads(notice.partition(b"\n")[0])
    return [(queue, job_id)]


def told(notice: bytes, wanted: str) -> Answer | None:
    """Read from a message of the answers' channel how a job has ended, if it is the one with this number and is short.

    What is said is in two lines: what is text, as JSON, and the outcome, which may be any bytes.
    """
    head, _, outcome = notice.partition(b"\n")
    seq, facts = json.loads(head)[2:]
    return answer(facts, outcome or None) if facts and seq == wanted else None


def reaped(queue: str, found: bytes, payloads: Sequence[bytes]) -> list[tuple[int, int, Reaped]]:
    """Read the jobs of reap.lua, each with its deadline and number; payloads are there of those that failed."""
    left = iter(payloads)
    return [
        (int(at), int(seq), Reaped(queue, *row, payload=next(left) if row[4] == "failed" else None))
        for at, seq, *row in json.loads(found)
    ]


def queue_stats(name: str, row: Sequence[Any]) -> QueueStats:
    """Read the answer of stats.lua."""
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
    told = json.loads(notice)
    at = read_time(told["at"])
    return [_event(told["queue"], at, *facts) for facts in told["events"]]


def _event(queue: str, at: datetime, name: Any, job_id: str, attempts: int, *stall: Any) -> Event:
    count, action, reason = stall or (None, None, None)
    return Event(name, queue, job_id, at, attempts=attempts, count=count, action=action, reason=reason)


def write_error(error: JobError) -> str:
    """Write an error as JSON."""
    return json.dumps({"type": error.type, "message": error.message, "traceback": error.traceback}, ensure_ascii=False)


def write(request: Any) -> bytes:
    """Write a request; what is no Unicode, in an error's text, becomes question marks."""
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
