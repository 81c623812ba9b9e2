"""Which exceptions of a task are retried, and when: `retry_on`, `discard_on` and `backoff`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pgjq.errors import ValidationError
from pgjq.options import check_seconds
from pgjq.outcome import Discard, Failing, Retry, Snooze, describe, fail

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Claimed

    Backoff = Callable[[BaseException, int], float | timedelta | None]

logger = logging.getLogger("pgjq")


class UnfitError(Exception):
    """The arguments of a job do not fit its task; the cause says why. No retry can help."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The options of a task that decide about its exceptions; what they leave open, the job's retry policy decides."""

    retry_on: tuple[type[BaseException], ...] | None = None
    discard_on: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None

    def decide(self, error: BaseException, claimed: Claimed) -> Outcome | None:
        """Return the outcome of a run that raised, or None for the job's retry policy."""
        if isinstance(error, UnfitError):
            return fail(error.__cause__ or error)
        if not isinstance(error, Exception) or isinstance(error, Retry | Snooze | Discard):
            return None
        if isinstance(error, self.discard_on) or not (self.retry_on is None or isinstance(error, self.retry_on)):
            return fail(error)
        if self.backoff is None or claimed.attempts >= claimed.max_attempts:
            return None
        return self._back_off(error, claimed, self.backoff)

    def _back_off(self, error: Exception, claimed: Claimed, backoff: Backoff) -> Outcome | None:
        try:
            delay = backoff(error, claimed.attempts)
            seconds = None if delay is None else check_seconds("the delay of backoff", delay, at_least=0)
        except Exception:
            facts = {"queue": claimed.lease.queue, "job_id": claimed.lease.id, "task": claimed.task}
            logger.exception("backoff failed, the job's retry policy applies", extra=facts)
            return None
        return fail(error) if seconds is None else Failing(describe(error), seconds, error)


def make_rule(retry_on: Any, discard_on: Any, backoff: Any) -> RetryRule:
    """Check the options; None stands for an option that was not set."""
    if backoff is not None and not callable(backoff):
        raise ValidationError(f"backoff must be a function of (error, attempt), not {backoff!r}")
    return RetryRule(
        None if retry_on is None else _types("retry_on", retry_on),
        () if discard_on is None else _types("discard_on", discard_on),
        cast("Backoff | None", backoff),
    )


def _types(option: str, given: Any) -> tuple[type[BaseException], ...]:
    try:
        types: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    except TypeError as error:
        raise ValidationError(f"{option} must be exception types, not {given!r}") from error
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValidationError(f"{option} must be exception types, not {kind!r}")
    return types
