"""Which exceptions of a task are retried, and when: `retry_on`, `discard_on` and `backoff`.

A task has them in the worker. What `using()` sets travels with the job, as names in its headers: exception types, by
which the worker compares, and the function of `backoff`. The worker calls a function of that name only if its process
passed it to `using()` of this task, or if it is in a loaded module of the task's own package: a header must not choose
any code that is installed. Of a function that it does not know it warns, and the job's retry policy applies.
"""

from __future__ import annotations

import inspect
import logging
import sys
from dataclasses import dataclass, field, replace
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
RULES: Final = ("retry_on", "discard_on", "backoff")
TYPES: Final = frozenset(("retry_on", "discard_on"))
HEADERS: Final = {f"pgjq-{option}": option for option in RULES}


class InvalidArgumentsError(Exception):
    """The arguments of a job do not fit its task; the cause says why. No retry can help."""


Kinds = tuple[type[BaseException] | str, ...]


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The options of a task for its exceptions; else the job's retry policy decides."""

    retry_on: Kinds | None = None
    discard_on: Kinds = ()
    backoff: Backoff | None = None
    module: str = ""  # Of the task's function.
    known: Mapping[str, Backoff] = field(default_factory=dict[str, "Backoff"])  # Of `using()`, by name.

    def decide(self, error: BaseException, claimed: Claimed) -> Outcome | None:
        """Return the outcome of a run that raised, or None for the job's retry policy."""
        if isinstance(error, InvalidArgumentsError):
            return fail(error.__cause__ or error)
        if not isinstance(error, Exception) or isinstance(error, Retry | Snooze | Discard):
            return None
        if claimed.headers and not HEADERS.keys().isdisjoint(claimed.headers):
            return replace(self, **self._from_headers(claimed.headers)).judge(error, claimed)
        return self.judge(error, claimed)

    def _from_headers(self, headers: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {option: headers[name] for name, option in HEADERS.items() if name in headers}
        for option in TYPES & found.keys():
            found[option] = tuple(found[option].split())
        if found.get("retry_on") == ():
            found["retry_on"] = None
        if "backoff" in found:
            found["backoff"] = self._named_backoff(found["backoff"])
        return found

    def _named_backoff(self, name: str) -> Backoff | None:
        if not name or name in self.known:
            return self.known.get(name)
        package = self.module.partition(".")[0]
        function = _find(name) if name.partition(":")[0].partition(".")[0] == package else None
        if inspect.isfunction(function) and _name(function) == name:
            return cast("Backoff", function)
        logger.warning("unknown backoff %s, the job's retry policy applies", name, extra={"backoff": name})
        return None

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


def to_headers(options: Mapping[str, Any], known: dict[str, Backoff]) -> dict[str, str]:
    """Return the headers of a job whose call sets its own retry options; None unsets one.

    A function of `backoff` becomes known.
    """
    named = {
        option: () if (given := options[option]) is None else _types(option, given) for option in TYPES & options.keys()
    }
    headers = {f"pgjq-{option}": " ".join(_name(kind) for kind in kinds) for option, kinds in named.items()}
    if "backoff" in options:
        headers["pgjq-backoff"] = (
            "" if options["backoff"] is None else _learn(_check_backoff(options["backoff"]), known)
        )
    return headers


def _learn(backoff: Any, known: dict[str, Backoff]) -> str:
    """Return the name of a function: where it is in its module, or else the line of its code."""
    code = getattr(backoff, "__code__", None)
    module, name = getattr(backoff, "__module__", ""), getattr(backoff, "__qualname__", type(backoff).__qualname__)
    named = f"{module}:{name}"
    if _find(named) is not backoff:
        named = f"{named}@{'' if code is None else code.co_firstlineno}"
    known[named] = backoff
    return named


def _find(name: str) -> Any:
    """Return what a name `module:name` means in the loaded modules, or None."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _is_one_of(error: BaseException, kinds: Kinds) -> bool:
    names = {_name(kind) for kind in type(error).__mro__} if any(isinstance(kind, str) for kind in kinds) else ()
    return any(kind in names if isinstance(kind, str) else isinstance(error, kind) for kind in kinds)


def _name(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def make_rule(options: Mapping[str, Any], module: str, known: Mapping[str, Backoff]) -> RetryRule:
    """Check the retry options of a task of this module; None is an option that was not set."""
    retry_on, discard_on, backoff = (options.get(name) for name in RULES)
    return RetryRule(
        None if retry_on is None else _types("retry_on", retry_on),
        () if discard_on is None else _types("discard_on", discard_on),
        None if backoff is None else _check_backoff(backoff),
        module,
        known,
    )


def _check_backoff(backoff: Any) -> Backoff:
    if not callable(backoff):
        raise ValidationError(f"backoff must be a function of (error, attempt), not {backoff!r}")
    return cast("Backoff", backoff)


def _types(option: str, given: Any) -> tuple[type[BaseException], ...]:
    try:
        types: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    except TypeError as error:
        raise ValidationError(f"{option} must be exception types, not {given!r}") from error
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValidationError(f"{option} must be exception types, not {kind!r}")
    return types
