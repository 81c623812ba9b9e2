"""Handlers as users register them, and how the worker calls each style."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pgjq.errors import ValidationError
from pgjq.type_variables import Result_contra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pgjq.event_bus import EventBus
    from pgjq.outcome import Outcome
    from pgjq.serde import Serde
    from pgjq.storage.base import Claimed
    from pgjq.worker.event_order import EventOrder

    Decide = Callable[[BaseException, Claimed], Outcome | None]

Style = Literal["plain", "coroutine", "callback"]
STYLES = "a handler is a function of (job), a coroutine function of (job), or a function of (job, done)"


@dataclass(frozen=True, slots=True)
class Target:
    """A function of a job, which a worker awaits or runs on a thread.

    `decide` maps an exception to an outcome; None, or a None that it returns, leaves that to the job's retry policy.
    """

    call: Callable[[Any], Any]
    is_coroutine: bool
    decide: Decide | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A queue with its targets: by the name of the job's task, and one for all other jobs."""

    queue: str
    default: Target
    payload_serde: Serde
    result_serde: Serde
    bus: EventBus
    order: EventOrder
    targets: Mapping[str | None, Target] = field(default_factory=dict[str | None, Target])

    def all_targets(self) -> Iterable[Target]:
        """Return every target."""
        return (self.default, *self.targets.values())


def target_of(handler: Callable[..., Any]) -> Target:
    """Return a handler of any style as a target; an unusable one is a ValidationError."""
    match style_of(handler):
        case "callback":
            return Target(lambda job: _call_back(handler, job), is_coroutine=False)
        case style:
            return Target(handler, is_coroutine=style == "coroutine")


class Done(Protocol[Result_contra]):
    """What a handler (job, done) calls once: with an error, or with None and the result."""

    def __call__(self, error: BaseException | None = None, result: Result_contra | None = None) -> None:
        """End the run."""
        ...


def style_of(handler: Any) -> Style:
    """Return how to call a handler; an unusable one is a ValidationError."""
    if not callable(handler):
        raise ValidationError(f"{handler!r} is not callable: {STYLES}")
    wanted = _required_arguments(handler)
    if is_coroutine_function(handler):
        if wanted != 1:
            raise ValidationError(f"{handler!r} takes {wanted} arguments: {STYLES}")
        return "coroutine"
    match wanted:
        case 1:
            return "plain"
        case 2:
            return "callback"
        case _:
            raise ValidationError(f"{handler!r} takes {wanted} arguments: {STYLES}")


def is_coroutine_function(function: Any) -> bool:
    """Return whether calling this returns a coroutine; an object may have an async `__call__`."""
    called = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _required_arguments(handler: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return 1  # Some built-in functions have no signature.
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p for p in parameters if p.kind in kinds]
    required = sum(p.default is inspect.Parameter.empty for p in positional)
    takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return 1 if required == 0 and (positional or takes_any) else required


def _call_back(handler: Callable[..., Any], job: Any) -> Any:
    """Call a callback-style handler, and wait for `done` or for the abort signal."""
    said: list[tuple[BaseException | None, Any]] = []
    spoken = threading.Event()

    def done(error: BaseException | None = None, result: Any = None) -> None:
        if not said:
            said.append((error, result))
            spoken.set()

    job.signal.on_abort(spoken.set)
    handler(job, done)
    # The wait lasts as long as the job: it ends with `done`, or with the signal at expiry, lease loss or shutdown.
    # If the signal was set before `on_abort`, `on_abort` has called the callback.
    spoken.wait()
    if not said:
        job.signal.raise_if_aborted()
    error, result = said[0]
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(str(error))
    return result
