"""Handlers as users register them, and how the worker calls each style."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pgjq.errors import ValidationError
from pgjq.type_variables import Result_contra

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.event_bus import EventBus
    from pgjq.serde import Serde
    from pgjq.worker.event_order import EventOrder

Style = Literal["plain", "coroutine", "callback"]
STYLES = "a handler is a function of (job), a coroutine function of (job), or a function of (job, done)"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A queue with its handler."""

    queue: str
    handler: Callable[..., Any]
    style: Style
    payload_serde: Serde
    result_serde: Serde
    bus: EventBus
    order: EventOrder


class Done(Protocol[Result_contra]):
    """What a handler of the style (job, done) calls once: with an error, or with None and the result."""

    def __call__(self, error: BaseException | None = None, result: Result_contra | None = None) -> None:
        """End the run."""
        ...


def style_of(handler: Any) -> Style:
    """Return how to call a handler; an unusable one is a ValidationError."""
    if not callable(handler):
        raise ValidationError(f"{handler!r} is not callable: {STYLES}")
    wanted = _required_arguments(handler)
    called = getattr(handler, "__call__", None)  # noqa: B004  (an object may have an async __call__)
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called):
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
