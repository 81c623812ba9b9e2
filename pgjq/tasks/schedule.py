"""Schedules in code: `@queue.schedule(…)` and `task.schedule(…)`.

Declaring one checks it and stores nothing. A worker of the queue adds it when it starts, or updates one that is defined
otherwise; one that is defined alike keeps its next run, so that deployments lose no tick. None is ever deleted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from pgjq.errors import UnsupportedError, ValidationError
from pgjq.options import QUEUE_LENGTH
from pgjq.schedules.options import ScheduleTimes
from pgjq.schedules.schedule import OWN_VALUES, Declared, Payload, define
from pgjq.schedules.zone import EPOCH
from pgjq.serde import serialize_payload
from pgjq.tasks.call import Call
from pgjq.tasks.decorator import TaskOptions
from pgjq.tasks.task import TaskBase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from pgjq.tasks.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")
Scheduled = TypeVar("Scheduled", bound="Call | TaskBase[Any, Any]")


class ScheduleOptions(ScheduleTimes, TaskOptions, total=False):
    """The options of `@queue.schedule`: those of `create_schedule`."""


class ScheduleDecorator(Protocol):
    """What `queue.schedule(…)` returns on a `Queue`: it takes a function, a task or a call."""

    @overload
    def __call__(self, target: Scheduled, /) -> Scheduled: ...
    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Task[P, R, R]: ...


class AsyncScheduleDecorator(Protocol):
    """What `queue.schedule(…)` returns on an `AsyncQueue`."""

    @overload
    def __call__(self, target: Scheduled, /) -> Scheduled: ...
    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> AsyncTask[P, R, R]: ...


def make_call(queue: Any, target: Any, names: Mapping[str, Any]) -> tuple[Any, Call]:
    """Return what the decorator returns, and the schedule's call, of a function or a task."""
    if isinstance(target, Call):
        return target, target
    if not isinstance(target, TaskBase):
        target = queue.define(target, names, {})
    task = cast("TaskBase[Any, Any]", target)
    return task, task.call()


def declare(queue: Any, call: Call, name: str | None, values: Mapping[str, Any]) -> Declared:
    """Check a schedule of a call, and return it for the queue's workers."""
    if not queue.storage.capabilities.definitions:
        raise UnsupportedError(f"{type(queue.storage).__name__} has no schedules, because it has no definitions")
    if call.queue != queue.name:
        raise ValidationError(f"{call!r} cannot be scheduled on queue {queue.name!r}: its task is on another queue")
    times = {option: value for option, value in values.items() if option in OWN_VALUES}
    options = _task_options(queue, call) | {o: value for o, value in values.items() if o not in OWN_VALUES}
    name = name or _name(call)
    payload = Payload(serialize_payload(queue.payload_serde, call.payload, f"{name}@"), call.payload["task"])
    declared = Declared(name, queue.name, payload, times | options)
    define(name, queue.name, payload, EPOCH, declared.values)
    return declared


def _task_options(queue: Any, call: Call) -> dict[str, Any]:
    """Return a task's job options: its own, its queue's, else retries with backoff."""
    options = {"result_ttl": queue.result_ttl, "max_attempts": queue.max_attempts, "retry_backoff": True}
    options |= {name: value for name, value in call.options.items() if value is not None}
    if options.get("retry_limit") is not None:
        options.pop("max_attempts")
    return {name: value for name, value in options.items() if value is not None}


def _name(call: Call) -> str:
    """Return the task's name, with its arguments if there are any: `receipt(7, copy=true)`."""
    args = [json.dumps(value, default=repr) for value in call.payload["args"]]
    kwargs = [f"{name}={json.dumps(value, default=repr)}" for name, value in sorted(call.payload["kwargs"].items())]
    task: str = call.payload["task"]
    name = f"{task}({', '.join([*args, *kwargs])})" if args or kwargs else task
    if len(name) > QUEUE_LENGTH:
        raise ValidationError(f"the arguments are too long for a name of the schedule; pass name=: {name:.80}")
    return name
