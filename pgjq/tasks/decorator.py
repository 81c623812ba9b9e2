"""The decorator `@queue.task`: its options, and its types for plain and coroutine functions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from pgjq.declared_options import CallOptions
from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import timedelta

    from pgjq.tasks.task import AsyncTask, Task, TaskBase

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(CallOptions, total=False):
    """The options of `task()`: those of `enqueue`, and what makes ids, keys and retries."""

    id: str | Callable[..., str | None] | None
    singleton_key: str | Callable[..., str | None] | None
    retry_on: type[BaseException] | Sequence[type[BaseException]] | None
    discard_on: type[BaseException] | Sequence[type[BaseException]] | None
    backoff: Callable[[Any, int], float | timedelta | None] | None


class UsingOptions(TaskOptions, total=False):
    """The options of `using()`: those of `task()`, and the caller's connection."""

    connection: Any


class TaskDecorator(Protocol):
    """What `queue.task(…)` returns on a `Queue`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class AsyncTaskDecorator(Protocol):
    """What `queue.task(…)` returns on an `AsyncQueue`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncTask[P, R, R]: ...


class Tasks:
    """The tasks of one queue, by name."""

    def __init__(self, queue: Any, kind: type[TaskBase[Any, Any]]) -> None:
        self._queue = queue
        self._kind = kind
        self.by_name: dict[str, TaskBase[Any, Any]] = {}
        """The tasks by name and by alias."""

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def add(self, function: Any, names: Mapping[str, Any], options: Mapping[str, Any]) -> TaskBase[Any, Any]:
        """Make a task of a function; a name that another task has is a ValidationError."""
        task = self._kind(self._queue, function, names=names, **options)
        for name in (task.name, *task.aliases):
            if name in self.by_name:
                raise ValidationError(
                    f"queue {self._queue.name!r} has a task {name!r} already: {self.by_name[name].function!r}"
                )
        self.by_name |= dict.fromkeys((task.name, *task.aliases), task)
        return task


def callers_names() -> Mapping[str, Any]:
    """Return the local names around a task in a function, for annotations that use them."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)
