"""Log lines of a worker about jobs: one line per event, with its facts as `extra=` fields.

| what happened | level |
|---|---|
| a job failed for good | ERROR, with the exception |
| an attempt failed or expired, and the job runs again | WARNING, with the exception |
| a job stalled: its worker went silent, or the attempt took too long | WARNING; ERROR if it failed by that |
| a lease was lost; an outcome was refused or dropped | WARNING; INFO for a handler that returned too late |
| the handler asked for it: `Retry`, `Discard`; a job was cancelled | INFO |
| processing, completed, snoozed, released | DEBUG |

The fields are `queue`, `job_id`, `attempt`, and where they apply `task`, `max_attempts`, `delay`, `error`, `reason`,
`action`, `count`, `worker`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from pgjq.outcome import Discard, Failed, Failing, Retry, Snoozed
from pgjq.worker.abort_signal import EXPIRED, is_abort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.job import State
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Reaped
    from pgjq.worker.handler import Consumer
    from pgjq.worker.run import Run


def is_debugged(consumers: Iterable[Consumer]) -> bool:
    """Return whether a logger of these queues takes debug lines."""
    return any(consumer.bus.logger.isEnabledFor(logging.DEBUG) for consumer in consumers)


def log_processing(run: Run) -> None:
    """Log the claim of a job."""
    _logger(run).debug("job processing", extra=_facts(run))


def log_settled(run: Run, outcome: Outcome, state: State) -> None:
    """Log the state that a run led to."""
    match state:
        case "failed":
            _log_failed(run, outcome)
        case "failing":
            _log_failing(run, outcome)
        case "cancelled":
            _logger(run).info("job cancelled", extra=_facts(run))
        case "queued":
            what = "job snoozed" if isinstance(outcome, Snoozed) else "job released"
            _logger(run).debug(what, extra=_facts(run, delay=getattr(outcome, "delay", None)))
        case _:
            _logger(run).debug("job %s", state, extra=_facts(run))


def _log_failed(run: Run, outcome: Outcome) -> None:
    cause = _cause(outcome)
    facts = _facts(run, max_attempts=run.claimed.max_attempts, error=_error(outcome))
    if isinstance(cause, Discard):
        _logger(run).info("job discarded", extra=facts)
    else:
        _logger(run).error("job failed", exc_info=cause, extra=facts)


def _log_failing(run: Run, outcome: Outcome) -> None:
    cause = _cause(outcome)
    facts = _facts(
        run,
        max_attempts=run.claimed.max_attempts,
        delay=getattr(outcome, "delay", None),
        error=_error(outcome),
        reason=run.abort_reason,
    )
    what = "attempt expired" if run.abort_reason == EXPIRED else "attempt failed"
    if isinstance(cause, Retry):
        _logger(run).info("%s, the job will be retried", what, exc_info=cause.__cause__, extra=facts)
    else:
        _logger(run).warning("%s, the job will be retried", what, exc_info=cause, extra=facts)


def log_lease_lost(run: Run) -> None:
    """Log that the worker no longer trusts the lease of a running job."""
    _logger(run).warning("lease lost", extra=_facts(run, lease=run.claimed.lease.number))


def log_refused(run: Run, outcome: Outcome, *, known: bool) -> None:
    """Log an outcome refused because the lease is lost; `known`: the loss was logged before."""
    cause = _cause(outcome)
    silent = known and (cause is None or _is_asked_for(cause))
    facts = _facts(run, lease=run.claimed.lease.number, error=_error(outcome))
    level = logging.DEBUG if silent else logging.WARNING
    _logger(run).log(level, "outcome refused: the lease is lost", exc_info=cause, extra=facts)


def log_dropped(run: Run, outcome: Outcome) -> None:
    """Log the result or exception of a handler whose run was over before."""
    cause = _cause(outcome)
    facts = _facts(run, reason=run.abort_reason, error=_error(outcome))
    if cause is not None and not _is_asked_for(cause):
        _logger(run).warning("handler raised after its run was over", exc_info=cause, extra=facts)
    elif run.abort_reason is not None:
        _logger(run).info("outcome dropped: the handler ended after its run was over", extra=facts)


def log_abandoned(run: Run) -> None:
    """Log a coroutine that continues although it was cancelled, on a loop that ends."""
    _logger(run).warning("handler abandoned: it did not end when it was cancelled", extra=_facts(run))


def log_stalled(logger: logging.Logger, job: Reaped) -> None:
    """Log a stalled job that was reaped."""
    facts = {
        "queue": job.queue,
        "job_id": job.id,
        "attempt": job.attempts,
        "max_attempts": job.max_attempts,
        "action": job.action,
        "reason": job.reason,
        "count": job.count,
        "worker": job.worker,
    }
    if job.task is not None:
        facts["task"] = job.task
    logger.log(logging.ERROR if job.action == "failed" else logging.WARNING, "job stalled", extra=facts)


def _logger(run: Run) -> logging.Logger:
    return run.consumer.bus.logger


def _facts(run: Run, **more: Any) -> dict[str, Any]:
    lease = run.claimed.lease
    facts = {
        "queue": lease.queue,
        "job_id": lease.id,
        "task": run.claimed.task,
        "attempt": run.claimed.attempts,
        **more,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _cause(outcome: Outcome) -> BaseException | None:
    return outcome.cause if isinstance(outcome, (Failing, Failed)) else None


def _error(outcome: Outcome) -> str | None:
    return f"{outcome.error.type}: {outcome.error.message}" if isinstance(outcome, (Failing, Failed)) else None


def _is_asked_for(cause: BaseException) -> bool:
    """Return whether a handler raised this because its run was aborted."""
    return isinstance(cause, asyncio.CancelledError) or is_abort(cause)
