"""Errors of what a queue, by its definition, does not accept: one text for every storage."""

from __future__ import annotations

from pgjq.errors import PolicyError, QueueNotFoundError


def needs_key(job_id: str) -> PolicyError:
    """Return the error of a job without a key in a queue with the policy `key_strict_fifo`."""
    return PolicyError(f"job {job_id!r} needs a singleton_key: its queue keeps each key in strict order")


def no_slot(queue: str, job_id: str) -> PolicyError:
    """Return the error of a retry while another job of the key has the slot."""
    return PolicyError(f"queue {queue!r} has no slot for job {job_id!r} now: another job of its key holds it")


def cannot_change(queue: str, what: str) -> PolicyError:
    """Return the error of creating a queue that exists with another policy or partition."""
    return PolicyError(f"queue {queue!r} exists with another {what}, which cannot be changed")


def is_dead_letter_of(queue: str, other: str) -> PolicyError:
    """Return the error of deleting the dead letter queue of another queue."""
    return PolicyError(f"queue {queue!r} is the dead letter of {other!r}; change the dead_letter of that queue first")


def not_strict(queue: str) -> PolicyError:
    """Return the error for asking for blocked keys of a queue whose keys nothing blocks."""
    return PolicyError(f"queue {queue!r} is not key_strict_fifo: nothing in it is blocked by failed jobs")


def no_queue(queue: str) -> QueueNotFoundError:
    """Return the error of managing a queue that does not exist."""
    return QueueNotFoundError(f"there is no queue {queue!r}; create_queue makes one")


def no_dead_letter_queue(queue: str | None) -> QueueNotFoundError:
    """Return the error of a dead letter queue that does not exist."""
    return QueueNotFoundError(f"there is no queue {queue!r} for dead letters; create it first")
