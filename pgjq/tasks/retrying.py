"""Which exceptions of a task are retried, and when: `retry_on`, `discard_on` and `backoff`.

A task has them in the worker. What `using()` sets travels with the job: the names of the exception types in two of its
headers, by which the worker compares. A function cannot travel, so `backoff` is an option of `task()` alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.errors import ValidationError
from pgjq.options import check_seconds
from pgjq.outcome import Discard, Failing, Retry, Snooze, describe, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Claimed

    Backoff = Callable[[BaseException, int], float | timedelta | None]

logger = logging.getLogger("pgjq")
OPTIONS: Final = frozenset(("retry_on", "discard_on"))
HEADERS: Final = {f"pgjq-{option}": option for option in sorted(OPTIONS)}


class UnfitError(Exception):
    """The arguments of a job do not fit its task; the cause says why. No retry can help."""


Kinds = tuple[type[BaseException] | str, ...]


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The options of a task that decide about its exceptions; what they leave open, the job's retry policy decides."""

    retry_on: Kinds | None = None
    discard_on: Kinds = ()
    backoff: Backoff | None = None

    def decide(self, error: BaseException, claimed: Claimed) -> Outcome | None:
        """Return the outcome of a run that raised, or None for the job's retry policy."""
        if isinstance(error, UnfitError):
            return fail(error.__cause__ or error)
        if not isinstance(error, Exception) or isinstance(error, Retry | Snooze | Discard):
            return None
        if claimed.headers and not HEADERS.keys().isdisjoint(claimed.headers):
            return replace(self, **_from_headers(claimed.headers)).judge(error, claimed)
        return self.judge(error, claimed)

    def judge(self, error: Exception, claimed: Claimed) -> Outcome | None:
        """Return the outcome for an exception of the task's function."""
        if _is_one_of(error, self.discard_on) or not (self.retry_on is None or _is_one_of(error, self.retry_on)):
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


def to_headers(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a job whose call sets its own `retry_on` or `discard_on`; None unsets one."""
    if options.get("backoff") is not None:
        raise ValidationError("backoff is an option of task(): a function cannot travel with a job to its worker")
    named = {
        option: () if (given := options[option]) is None else _types(option, given)
        for option in OPTIONS & options.keys()
    }
    return {f"pgjq-{option}": " ".join(_name(kind) for kind in kinds) for option, kinds in named.items()}


def _from_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    found = {option: tuple(headers[header].split()) for header, option in HEADERS.items() if header in headers}
    return found if found.get("retry_on") != () else found | {"retry_on": None}


def _is_one_of(error: BaseException, kinds: Kinds) -> bool:
    names = {_name(kind) for kind in type(error).__mro__} if any(isinstance(kind, str) for kind in kinds) else ()
    return any(kind in names if isinstance(kind, str) else isinstance(error, kind) for kind in kinds)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


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
