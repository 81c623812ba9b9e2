"""Runs: claim, heartbeat, settle and reap jobs."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from pgjq.job import Attempt, JobError
from pgjq.lease import Stall, explain, judge
from pgjq.options import NO_OPTIONS
from pgjq.outcome import Cancelled, Completed, EndedRun, Failed, Failing, Released, Snoozed, attempt_outcome
from pgjq.retry import retry_delay
from pgjq.storage.base import Claimed, HeartbeatResult, Lease, Reaped, Settled, settled_as
from pgjq.storage.model.claim_deadlines import ClaimDeadlines
from pgjq.storage.model.dead_letters import move_to_dead_letter
from pgjq.storage.model.record import earlier, later

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import AttemptOutcome, State
    from pgjq.lease import Action
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Settlement
    from pgjq.storage.model.claim_deadlines import Claimant
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record

# A job's record keeps so many of the workers that it stalled on.
STALLED_ON = 20

# Values of a job without a run. An ended job keeps the worker of its last run.
IDLE: dict[str, Any] = {"locked_until": None, "expire_at": None}

# The fields that a claim and an end change.
CLAIMED = (
    *("state", "lease", "attempts", "worker", "claim_id", "started_at"),
    *("lease_seconds", "expire_at", "locked_until", "max_stalled", "reap_exhausted"),
)
ENDED = ("state", "finished_at", "result", "error", "locked_until", "expire_at")
ENDED_RUN = (*ENDED, "last_attempt")

NO_SLOT = JobError("PolicyError", "released while another job of its key is failing")


def claim(jobs: Jobs, queues: Sequence[str], claimant: Claimant, limit: int) -> list[Claimed]:
    """Take due jobs, by priority and then by age."""
    policy = claimant.policy
    chosen, terms = NO_OPTIONS, ClaimDeadlines.of(NO_OPTIONS, policy, jobs.now)  # Those of the job before.
    taken: list[Claimed] = []
    for queue in queues:
        ready = jobs.claimable(queue)
        while ready is not None and len(taken) < limit and (record := ready.pop()) is not None:
            if record.settings.options is not chosen:
                chosen = record.settings.options
                terms = ClaimDeadlines.of(chosen, policy, jobs.now)
            taken.append(_claim(jobs, record, claimant, terms))
    return taken


def find_claimed(jobs: Jobs, claim_id: int) -> list[Claimed]:
    """Find the jobs that a claim took and still holds."""
    return [_claimed(record) for record in jobs.processing.values() if record.claim_id == claim_id]


def _claim(jobs: Jobs, record: Record, claimant: Claimant, terms: ClaimDeadlines) -> Claimed:
    record.state = "processing"
    record.lease += 1
    record.attempts += 1
    record.worker, record.claim_id, policy = claimant
    record.started_at = jobs.now
    record.lease_seconds = terms.lease_seconds
    record.expire_at = terms.expire_at
    record.locked_until = terms.locked_until
    record.max_stalled = policy.max_stalled
    record.reap_exhausted = policy.reap_exhausted
    jobs.moved(record, "processing", CLAIMED)
    return _claimed(record)


def _claimed(record: Record) -> Claimed:
    started, expire_at = record.started_at, record.expire_at
    return Claimed(
        Lease(record.queue, record.id, record.lease, record.seq),
        record.payload,
        record.attempts,
        record.max_attempts,
        record.created_at,
        record.lease_seconds,
        None if started is None or expire_at is None else (expire_at - started).total_seconds(),
        record.checkpoint,
        record.settings.options,
        record.task,
        record.headers,
    )


def settle(jobs: Jobs, settlements: Sequence[Settlement]) -> list[Settled]:
    """End runs, each only if its lease still holds the job."""
    return [Settled(lease, _settle(jobs, jobs.held(lease), outcome)) for lease, outcome in settlements]


def _settle(jobs: Jobs, record: Record | None, outcome: Outcome) -> State | None:
    if record is None:
        return None
    outcome = Cancelled() if record.cancel_requested else outcome
    how = attempt_outcome(outcome)
    match outcome:
        case Completed(result):
            end(jobs, record, "completed", result=result)
        case Failed(error):
            _fail(jobs, record, how, error)
        case Cancelled():
            end(jobs, record, "cancelled", how)
        case Failing(error) if _state_after(jobs, record, "failing") == "failed":
            _fail(jobs, record, how, error)
        case Failing(error, delay):
            _requeue(jobs, record, how, "failing", delay, error=error)
        case Released():
            release(jobs, record, how, 0.0)
        case Snoozed(delay):
            release(jobs, record, how, delay)
        case _ as never:
            assert_never(never)
    return record.state


def find_settled(jobs: Jobs, settlements: Sequence[Settlement]) -> list[Settled]:
    """Return which settlements were made."""
    return [settled_as(each, _ended_run(jobs.records.get(each.lease.key), each)) for each in settlements]


def _ended_run(record: Record | None, settlement: Settlement) -> EndedRun | None:
    if record is None:
        return None
    number = settlement.lease.number
    state = record.state if record.lease == number and record.state != "processing" else None
    attempt = next((made for made in record.history if made.number == number), None)
    error = getattr(settlement.outcome, "error", None)
    return EndedRun(attempt and attempt.outcome, state, attempt is not None and attempt.error == error)


def end(
    jobs: Jobs,
    record: Record,
    state: State,
    how: AttemptOutcome | None = None,
    *,
    result: bytes | None = None,
    error: JobError | None = None,
) -> None:
    """End a job. `how` records its run; None: it completed, or the job does not run."""
    if how is not None:
        record.last_attempt = _attempt(jobs, record, how, error)
    record.state = state
    record.finished_at = jobs.now
    record.result = result
    record.error = error
    record.locked_until = record.expire_at = None
    # Every end state is also the name of an event.
    jobs.moved(record, state, ENDED if how is None else ENDED_RUN)  # pyright: ignore[reportArgumentType]


def _attempt(jobs: Jobs, record: Record, how: AttemptOutcome, error: JobError | None) -> Attempt:
    """Return the run that ends now."""
    return Attempt(record.lease, record.worker, record.started_at or jobs.now, jobs.now, how, error)


def _fail(jobs: Jobs, record: Record, how: AttemptOutcome, error: JobError | None) -> None:
    """Fail a job, and copy it to its dead letter queue, if it has one."""
    end(jobs, record, "failed", how, error=error)
    move_to_dead_letter(jobs, record)


def _state_after(jobs: Jobs, record: Record, state: State) -> State:
    """Return the state that a job gets if its run is to leave it in `state`."""
    return jobs.policy(record.queue).state_after_release(state, jobs.others(record))


def _requeue(jobs: Jobs, record: Record, how: AttemptOutcome, state: State, delay: float, **fields: Any) -> None:
    """End a run, but not the job; `fields` may have the error of the run."""
    fields["last_attempt"] = _attempt(jobs, record, how, fields.get("error"))
    run_at = jobs.now + timedelta(seconds=delay)
    jobs.change(record, state, state=state, run_at=run_at, worker=None, **IDLE, **fields)  # pyright: ignore[reportArgumentType]


def release(jobs: Jobs, record: Record, how: AttemptOutcome, delay: float) -> None:
    """Release a job: its attempt does not count, and it returns to its state before the claim.

    It fails if its policy has no slot for it there.
    """
    attempts = record.attempts - 1
    state = _state_after(jobs, record, "failing" if attempts else "queued")
    if state == "failed":
        _fail(jobs, record, "failed", NO_SLOT)
    else:
        _requeue(jobs, record, how, state, delay, attempts=attempts)


def heartbeat(jobs: Jobs, leases: Sequence[Lease]) -> HeartbeatResult:
    """Move `locked_until` forward for every lease still held."""
    held = [(lease, jobs.held(lease)) for lease in leases]
    for _, record in held:
        if record is not None:
            renewed = earlier(later(jobs.now, record.lease_seconds), record.expire_at)
            jobs.change(record, locked_until=renewed)
    return HeartbeatResult(
        lost=[lease for lease, record in held if record is None],
        cancel_requested=[lease for lease, record in held if record is not None and record.cancel_requested],
    )


def save_checkpoint(jobs: Jobs, lease: Lease, checkpoint: bytes) -> bool:
    """Store a value for the next run, if the lease still holds."""
    record = jobs.held(lease)
    if record is not None:
        jobs.change(record, checkpoint=checkpoint)
    return record is not None


def reap(jobs: Jobs, limit: int, stale_age: float) -> list[Reaped]:
    """Recover, fail or cancel jobs whose deadline has passed, the most overdue first."""
    patience = timedelta(seconds=stale_age)
    late = [r for r in jobs.processing.values() if _is_late(_limit_deadline(jobs, r), jobs.now, patience)]
    late.sort(key=lambda r: (r.locked_until, r.seq))
    return [_reap(jobs, record) for record in late[:limit]]


def _limit_deadline(jobs: Jobs, record: Record) -> Record:
    """Limit a deadline to a lease from now: a later one is from before the clock was set back."""
    latest = later(jobs.now, record.lease_seconds)
    if latest is not None and record.locked_until is not None and record.locked_until > latest:
        jobs.change(record, locked_until=latest)
    return record


def _is_late(record: Record, now: datetime, patience: timedelta) -> bool:
    if record.locked_until is None or record.locked_until > now:
        return False
    return record.locked_until <= now - patience or (record.expire_at is not None and record.expire_at <= now)


def _reap(jobs: Jobs, record: Record) -> Reaped:
    action = _judge(jobs, record)
    reason = "expired" if record.expire_at is not None and record.expire_at <= jobs.now else "lease"
    worker = record.worker or "?"
    how: AttemptOutcome = "expired" if reason == "expired" else "stalled"
    if action != "cancelled":
        _record_stall(jobs, record, explain(reason, worker), worker)
    jobs.change(record, "stalled", {"count": record.stalled, "action": action, "reason": reason})
    match action:
        case "recovered":
            delay = retry_delay(record.settings.options, record.attempts, random.random())  # noqa: S311
            _requeue(jobs, record, how, "failing", delay, error=record.error)
        case "failed":
            _fail(jobs, record, how, record.error)
        case "cancelled":
            end(jobs, record, "cancelled", "cancelled")
        case _ as never:
            assert_never(never)
    return Reaped(
        record.queue,
        record.id,
        record.stalled,
        record.attempts,
        record.max_attempts,
        action,
        reason,
        worker,
        record.payload if action == "failed" else None,
        record.task,
    )


def _judge(jobs: Jobs, record: Record) -> Action:
    """Decide what happens to a stalled job; one that finds its slot taken fails."""
    stall = Stall(
        record.cancel_requested,
        record.attempts,
        record.max_attempts,
        record.stalled,
        record.max_stalled,
        record.reap_exhausted,
    )
    action = judge(stall)
    taken = action == "recovered" and _state_after(jobs, record, "failing") == "failed"
    return "failed" if taken else action


def _record_stall(jobs: Jobs, record: Record, error: JobError, worker: str) -> None:
    stalled_on = (*record.stalled_on, worker)[-STALLED_ON:]
    jobs.change(record, stalled=record.stalled + 1, stalled_on=stalled_on, error=error)


def next_deadline(jobs: Jobs) -> float | None:
    """Return the seconds until a processing job's next deadline."""
    deadlines = [r.locked_until for r in jobs.processing.values() if r.locked_until is not None]
    return (min(deadlines) - jobs.now).total_seconds() if deadlines else None
