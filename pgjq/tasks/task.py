"""Tasks as users define and enqueue them."""

from __future__ import annotations

import functools
import inspect
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from pgjq.errors import ValidationError
from pgjq.job import NewJob
from pgjq.job_settings import new_job, settings
from pgjq.options import check_headers, check_int, check_task
from pgjq.tasks.arguments import Arguments
from pgjq.tasks.call import Call, TaskJob
from pgjq.tasks.depends import check_dependencies
from pgjq.tasks.handle import AsyncHandle, Handle
from pgjq.tasks.retrying import RULES, RetryRule, make_rule, to_headers
from pgjq.tasks.templates import Template
from pgjq.worker.handler import is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgjq.declared_options import EnqueueOptions
    from pgjq.options import Headers, Settings
    from pgjq.queue import AsyncQueue, Queue
    from pgjq.tasks.decorator import UsingOptions

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

TEMPLATES = ("id", "singleton_key")
VERSION_MAX = 2**31 - 1


class TaskBase(Generic[P, C]):
    """A named function on a queue. Calling it calls the function; `C` is what that returns."""

    queue: Any

    def __init__(
        self,
        queue: Any,
        function: Callable[P, C],
        *,
        name: str | None = None,
        version: int = 1,
        aliases: Any = (),
        names: Mapping[str, Any],
        **options: Any,
    ) -> None:
        functools.update_wrapper(self, function)
        self.queue = queue
        self.function = _check_function(function)
        self.name = check_task(getattr(function, "__name__", None) if name is None else name)
        self.version = check_int("version", version, 1, VERSION_MAX)
        self.aliases = _check_aliases(aliases)
        self.is_coroutine = is_coroutine_function(function)
        self.arguments = Arguments(function, self.name, names)
        check_dependencies(function)
        self.options: dict[str, Any] = {}
        self._backoffs: dict[str, Any] = {}  # Of every `using()` of this task: its copies share this.
        if "connection" in options:
            raise ValidationError("connection is an option of using(), for each enqueue: a task has none")
        self._set(options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function itself, here and now."""
        return self.function(*args, **kwargs)

    def using(self, **options: Unpack[UsingOptions]) -> Self:
        """Return this task with other options: those of `enqueue`, and those of `task`."""
        changed, given = copy(self), dict[str, Any](options)
        headers = to_headers(given, self._backoffs)
        if headers:
            given["headers"] = {**(given.get("headers", self.options.get("headers")) or {}), **headers}
        changed._set(self.options | given)  # noqa: SLF001  (a copy of itself)
        return changed

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Check the arguments and return them as a value for `enqueue_many`."""
        if self.connection is not None:
            raise ValidationError("connection= of using() is for enqueue(): pass it to enqueue_many, for all its jobs")
        return self._call(args, kwargs)

    def schedule(self, cron: str, *args: P.args, **kwargs: P.kwargs) -> None:
        """Run this task with these arguments at the times of a cron expression, in UTC.

        The schedule is named after the task and the arguments. `queue.schedule(…)(task.call(…))` has further options.
        """
        self.queue.declare_schedule(self.call(*args, **kwargs), None, {"cron": cron})

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        if kwargs or tuple(map(type, args)) not in self.arguments.exact_calls:
            positional, named = self.arguments.write(args, kwargs, self.queue.payload_serde)
        else:
            positional, named = list(args), kwargs  # A valid call whose values need no conversion.
        payload: dict[str, Any] = {"task": self.name, "args": positional, "kwargs": named}
        if self.version != 1:
            payload["version"] = self.version
        job_id = None if self._id is None else self._id.fill(args, kwargs)
        return Call(self, payload, job_id, None if self._key is None else self._key.fill(args, kwargs))

    def _set(self, options: dict[str, Any]) -> None:
        self.options = options
        self.connection: Any = options.get("connection")
        self.rule: RetryRule = make_rule(options, getattr(self.function, "__module__", ""), self._backoffs)
        self._id, self._key = (self._template(name) for name in TEMPLATES)
        self._job = TaskJob(None, None, **self._checked_job_options())
        self.headers: Headers | None = None if self._job.headers is None else check_headers(self._job.headers)
        settings(self._job)
        self._settings: tuple[Settings, Settings] | None = None  # The usual ones of a queue, and those of this task.

    def _template(self, option: str) -> Template | None:
        source = self.options.get(option)
        return None if source is None else Template(option, source, self.arguments)

    def settings(self, defaults: Settings, singleton_key: str | None) -> Settings:
        """Return the resolved settings of a job of this task."""
        known = self._settings
        if known is None or known[0] is not defaults:
            known = self._settings = defaults, settings(self._job, defaults)
        if singleton_key is None:
            return known[1]
        return replace(known[1], singleton_key=settings(NewJob(None, None, singleton_key=singleton_key)).singleton_key)

    def job_options(self, singleton_key: str | None) -> dict[str, Any]:
        """Return the options of a job of this task, as `NewJob` takes them."""
        return self._own | {"singleton_key": singleton_key}

    def _checked_job_options(self) -> dict[str, Any]:
        """Keep the options that are a job's own; an unknown one is a ValidationError."""
        others = (*RULES, *TEMPLATES, "connection")
        self._own = {name: value for name, value in self.options.items() if name not in others}
        new_job(None, None, cast("EnqueueOptions", self._own))
        return self._own

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{self.arguments.signature} in queue {self.queue.name!r}>"


class Task(TaskBase[P, C], Generic[P, R, C]):
    """A task on a `Queue`: `R` is the type of its result, `C` of a call of the function."""

    queue: Queue

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Check the arguments, add a job, and return a handle of it."""
        (result,) = self.queue.enqueue_many([self._call(args, kwargs)], connection=self.connection)
        return Handle(self.queue, result, self.arguments.returns)


class AsyncTask(TaskBase[P, C], Generic[P, R, C]):
    """A task on an `AsyncQueue`: `enqueue` is a coroutine, and returns an `AsyncHandle`."""

    queue: AsyncQueue

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """Check the arguments, add a job, and return a handle of it."""
        (result,) = await self.queue.enqueue_many([self._call(args, kwargs)], connection=self.connection)
        return AsyncHandle(self.queue, result, self.arguments.returns)


def _check_function(function: Any) -> Any:
    if not callable(function) or isinstance(function, type):
        raise ValidationError(f"a task is a function or a coroutine function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError(f"a task must not be a generator: {function!r} yields")
    return function


def _check_aliases(aliases: Any) -> tuple[str, ...]:
    if isinstance(aliases, str):
        raise ValidationError(f"aliases must be a list of names, not the str {aliases!r}")
    return tuple(check_task(alias) for alias in aliases)
