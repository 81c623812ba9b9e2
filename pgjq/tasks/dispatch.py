"""The worker's side of tasks: find the task, convert arguments, call the function.

A job that names no task of this worker, or a newer version of one, is put back: its attempt does not count, and it is
due again after 10 s, 20 s, and so on up to 5 minutes. So new jobs wait for new workers during a rolling deployment.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from pgjq.blocking import drive
from pgjq.convert import structured
from pgjq.errors import StorageError, ValidationError
from pgjq.outcome import Snooze
from pgjq.tasks.arguments import EXACT
from pgjq.tasks.depends import Resolution, dependencies_of
from pgjq.tasks.retrying import InvalidArgumentsError
from pgjq.worker.handler import Target, target_of
from pgjq.worker.loop_bridge import Bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from pgjq.job import WarningReason
    from pgjq.queue import QueueBase
    from pgjq.tasks.task import TaskBase
    from pgjq.worker.job import AsyncJob, Job

    AnyJob = Job | AsyncJob
    Around = Callable[[Target], Target]

FIRST_DELAY: Final = 10.0
LONGEST_DELAY: Final = 300.0
# A queue full of unknown tasks warns this often for each name, and says for how many jobs.
WARN_SECONDS: Final = 1.0
NAMES_MAX: Final = 1000


class Dispatcher:
    """The targets of a queue with tasks; made on the worker's loop."""

    def __init__(self, queue: QueueBase, around: Around) -> None:
        self._queue = queue
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._put_back = PutBack(queue)

    def targets(self) -> Mapping[str | None, Target]:
        """Return the target of each name and alias, and under None that of jobs that name no task."""
        found: dict[str | None, Target] = {name: self._target(task) for name, task in self._queue.tasks_by_name.items()}
        handler = self._queue.handler
        found[None] = self._failing_target("no_handler") if handler is None else self._around(target_of(handler))
        return found

    def unknown(self) -> Target:
        """Return the target of jobs that name a task that this worker does not know."""
        return self._failing_target("unknown_task")

    def _failing_target(self, reason: WarningReason) -> Target:
        if all(task.is_coroutine for task in self._queue.tasks_by_name.values()):
            return Target(partial(self._put_back.in_async_mode, reason=reason), is_coroutine=True)
        return Target(partial(self._put_back.in_sync_mode, reason=reason), is_coroutine=False)

    def _target(self, task: TaskBase[Any, Any]) -> Target:
        task.arguments.resolve()
        run = self._coroutine(task) if task.is_coroutine else self._plain(task)
        inner = self._around(Target(run, is_coroutine=task.is_coroutine, decide=task.rule.decide))
        return Target(self._guarded(task, inner), inner.is_coroutine, inner.decide)

    def _guarded(self, task: TaskBase[Any, Any], inner: Target) -> Callable[[Any], Any]:
        """Return a function that puts jobs of a newer version back before any middleware.

        It is a plain function in both modes, and returns a coroutine in async mode: one coroutine less for each run.
        """
        put_back: Any = self._put_back.in_async_mode if inner.is_coroutine else self._put_back.in_sync_mode
        version, call = task.version, inner.call

        def guarded(job: AnyJob) -> Any:
            payload: Any = job.payload
            if type(payload) is dict and "version" not in payload:
                return call(job)
            return put_back(job, reason="newer_version") if _version(job) > version else call(job)

        return guarded

    def _plain(self, task: TaskBase[Any, Any]) -> Callable[[Any], Any]:
        function, data = task.function, _writer(task)

        def run(job: Job) -> Any:
            args, kwargs = _arguments(task, job)
            return function(*args, **kwargs)

        def run_and_convert(job: Job) -> Any:
            return data(run(job))

        def run_with_dependencies(job: Job) -> Any:
            args, kwargs = _arguments(task, job)

            async def call(**provided: Any) -> Any:
                return function(*args, **kwargs, **provided)

            return data(drive(Resolution(partial(self._block, job)).call(call, function)))

        if dependencies_of(function):
            return run_with_dependencies
        return run if data is unchanged else run_and_convert

    def _coroutine(self, task: TaskBase[Any, Any]) -> Callable[[Any], Any]:
        function, data = task.function, _writer(task)

        def run(job: AsyncJob) -> Any:
            args, kwargs = _arguments(task, job)
            return function(*args, **kwargs)

        async def run_and_convert(job: AsyncJob) -> Any:
            args, kwargs = _arguments(task, job)
            return data(await function(*args, **kwargs))

        async def run_with_dependencies(job: AsyncJob) -> Any:
            args, kwargs = _arguments(task, job)
            return data(await Resolution(_wait).call(partial(function, *args, **kwargs), function))

        if dependencies_of(function):
            return run_with_dependencies
        return run if data is unchanged else run_and_convert

    async def _block(self, job: Job, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of a dependency on the loop, while the task's thread waits."""
        return Bridge(self._loop, job.signal).run(coroutine)


async def _wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


def _version(job: AnyJob) -> int:
    payload: dict[str, Any] = job.payload
    version: Any = payload.get("version", 1) if type(payload) is dict else None
    if type(version) is not int:
        raise InvalidArgumentsError from ValidationError(
            f"the payload of task {job.task!r} must be an object whose version is a whole number"
        )
    return version


def _arguments(task: TaskBase[Any, Any], job: AnyJob) -> tuple[list[Any], dict[str, Any]]:
    payload: dict[str, Any] = job.payload
    try:
        return task.arguments.read(payload.get("args", []), payload.get("kwargs", {}))
    except ValidationError as error:
        raise InvalidArgumentsError from error


def _writer(task: TaskBase[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that makes results writable for any serde: sets become data."""
    return structured if _needs_structure(task.arguments.returns) else unchanged


def unchanged(result: Any) -> Any:
    """Return a result that needs no conversion."""
    return result


def _needs_structure(kind: Any) -> bool:
    """Return whether values of a type may have parts that a serde cannot write by itself."""
    if get_origin(kind) is None:
        return kind not in (Any, object, list, dict, tuple) and kind not in EXACT
    is_set = isinstance(origin := get_origin(kind), type) and issubclass(origin, AbstractSet)
    return is_set or any(_needs_structure(part) for part in get_args(kind))


class PutBack:
    """Puts jobs back that this worker cannot run, and warns."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._warned: dict[tuple[str | None, str], tuple[float, int]] = {}

    def in_sync_mode(self, job: AnyJob, *, reason: WarningReason) -> None:
        """Warn, and raise the `Snooze` that puts the job back."""
        count = self._due(job, reason)
        if count:
            with suppress(StorageError):
                ops = self._queue.storage.operations("sync")
                drive(ops.warn(job.queue, job.id, task=job.task, reason=reason, count=count))
        raise self._snooze(job, reason, count)

    async def in_async_mode(self, job: AnyJob, *, reason: WarningReason) -> None:
        """Warn, and raise the `Snooze` that puts the job back."""
        count = self._due(job, reason)
        if count:
            with suppress(StorageError):
                ops = self._queue.storage.operations("async")
                await ops.warn(job.queue, job.id, task=job.task, reason=reason, count=count)
        raise self._snooze(job, reason, count)

    def _due(self, job: AnyJob, reason: WarningReason) -> int:
        """Return how many jobs to warn about now, 0 if the last warning for this name was just now."""
        now, key = time.monotonic(), (job.task, reason)
        with self._lock:
            if len(self._warned) > NAMES_MAX:
                self._warned.clear()
            warned_at, missed = self._warned.get(key, (-WARN_SECONDS, 0))
            if now - warned_at < WARN_SECONDS:
                self._warned[key] = warned_at, missed + 1
                return 0
            self._warned[key] = now, 0
            return missed + 1

    def _snooze(self, job: AnyJob, reason: WarningReason, count: int) -> Snooze:
        # Every claim raises the lease number, and every run that counts the attempts: the rest was put back.
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(10, max(0, job.lease - job.attempts)))
        if count:
            facts = {"queue": job.queue, "job_id": job.id, "task": job.task, "reason": reason, "delay": delay}
            self._queue.bus.logger.warning(_WARNINGS[reason], extra=facts | {"count": count})
        return Snooze(delay)


_WARNINGS: Final[Mapping[str, str]] = {
    "unknown_task": "job put back: this worker does not know its task",
    "newer_version": "job put back: this worker has an older version of its task",
    "no_handler": "job put back: it names no task, and this worker has no handler for such jobs",
}
