"""What was enqueued, by whatever code, process or SQL statement: read from the storage."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, cast, overload

from pgjq.blocking import drive
from pgjq.errors import ValidationError
from pgjq.options import JobFilter, check_datetime
from pgjq.queue import AsyncQueue, Queue
from pgjq.tasks.task import AsyncTask, Task
from pgjq.testing.enqueued_job import VALUES, EnqueuedJob
from pgjq.testing.replace_storage import use_connection

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from contextvars import Token
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import JobStatus

PAGE: Final = 1000


class Capture(Sequence[EnqueuedJob]):
    """The jobs that were enqueued in a block, in order, and a mark for `since=`.

    Inside the block it is read from the storage at each use; after the block it does not change.
    """

    def __init__(self, queue: Queue[Any, Any] | AsyncQueue[Any, Any], connection: Any) -> None:
        self.queue = queue
        self._connection = connection
        self._binding: AbstractContextManager[None] | None = None
        self._token: Token[tuple[Capture, ...]] | None = None
        self._after = 0
        self._jobs: list[EnqueuedJob] | None = None

    def __enter__(self) -> Self:
        drive(self._begin("sync"))
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._jobs = drive(find(self.queue, "sync", after=self._after))
        finally:
            self._end()

    async def __aenter__(self) -> Self:
        await self._begin("async")
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            self._jobs = await find(self.queue, "async", after=self._after)
        finally:
            self._end()

    async def _begin(self, mode: Mode) -> None:
        if self._connection is not None:
            self._binding = use_connection(self.queue.storage, self._connection)
            self._binding.__enter__()
        self._after = await _last(self.queue, mode)
        self._token = _open.set((*_open.get(), self))

    def _end(self) -> None:
        if self._token is not None:
            _open.reset(self._token)
        if self._binding is not None:
            self._binding.__exit__(None, None, None)

    def _now(self) -> list[EnqueuedJob]:
        return drive(find(self.queue, "sync", after=self._after)) if self._jobs is None else self._jobs

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, index: int) -> EnqueuedJob: ...
    @overload
    def __getitem__(self, index: slice) -> list[EnqueuedJob]: ...
    def __getitem__(self, index: int | slice) -> EnqueuedJob | list[EnqueuedJob]:
        return self._now()[index]

    def __repr__(self) -> str:
        return f"<Capture of queue {self.queue.name!r}: {', '.join(map(str, self._now())) or 'nothing'}>"


_open: ContextVar[tuple[Capture, ...]] = ContextVar("pgjq captures", default=())


def capture(queue: Queue[Any, Any] | AsyncQueue[Any, Any], *, connection: Any = None) -> Capture:
    """Capture the jobs that are enqueued in a `with` block.

    It sees the jobs of any producer, and none that was there before. With `connection`, the block happens inside that
    connection's transaction (`use_connection`); an async one needs `async with`, and is read when the block ends.
    """
    if not isinstance(queue, Queue | AsyncQueue):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"capture takes a Queue or an AsyncQueue, not {queue!r:.80}")
    return Capture(queue, connection)


def assert_enqueued(task_or_queue: Any, /, *args: Any, since: datetime | Capture | None = None, **kwargs: Any) -> Any:
    """Assert that a job was enqueued, and return the first that fits.

    For a task, the arguments given are compared with the job's, in the task's types; those not given may be anything.
    For a queue, `args` is the payload, and `kwargs` are values of an `EnqueuedJob`, such as `id` and `priority`. Only
    jobs `since` a time or inside a `capture` count; without it, those of the innermost open `capture` of the queue.
    """
    wanted = _check_wanted(task_or_queue, args, kwargs)
    jobs = _jobs(task_or_queue, since)
    for job in jobs:
        if _fits(job, task_or_queue, wanted):
            return job
    listed = "".join(f"\n  {job}" for job in jobs) or " nothing"
    raise AssertionError(f"not enqueued: {_wanted(task_or_queue, args, kwargs)}; enqueued:{listed}")


def refute_enqueued(task_or_queue: Any, /, *args: Any, since: datetime | Capture | None = None, **kwargs: Any) -> None:
    """Assert that no such job was enqueued; the arguments are those of `assert_enqueued`."""
    wanted = _check_wanted(task_or_queue, args, kwargs)
    for job in _jobs(task_or_queue, since):
        if _fits(job, task_or_queue, wanted):
            raise AssertionError(f"enqueued, but must not be: {job}")


def _queue_of(source: Any) -> Any:
    queue: Any = cast("Any", source).queue if isinstance(source, Task | AsyncTask) else source
    if not isinstance(cast("object", queue), Queue | AsyncQueue):
        raise ValidationError(f"pass a task, a Queue or an AsyncQueue, not {source!r:.80}")
    return queue


def _jobs(source: Any, since: datetime | Capture | None) -> list[EnqueuedJob]:
    queue = _queue_of(source)
    if since is None:
        since = next((opened for opened in reversed(_open.get()) if _is_same(opened.queue, queue)), None)
    if isinstance(since, Capture):
        if since.queue.name != queue.name:
            raise ValidationError(f"since is a capture of queue {since.queue.name!r}, not of {queue.name!r}")
        return list(since)
    if since is None:
        return drive(find(queue, "sync"))
    return drive(find(queue, "sync", since=check_datetime("since", since)))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two queue objects read the same jobs; Django tests make one per call."""
    if one.name != other.name:
        return False
    bound = getattr(one.storage, "caller_connection", None)
    return one.storage is other.storage or (
        bound is not None and bound is getattr(other.storage, "caller_connection", None)
    )


def _check_wanted(source: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what to compare a job with, by name; ValidationError if no job can match."""
    if not isinstance(source, Task | AsyncTask):
        _queue_of(source)
        unknown = [name for name in kwargs if name not in VALUES]
        if len(args) > 1 or unknown:
            raise ValidationError(
                f"a job of a queue is compared by its payload and by values of EnqueuedJob, not by {unknown or args}"
            )
        return kwargs | ({"payload": args[0]} if args else {})
    task = cast("Any", source)
    task.arguments.resolve()
    try:
        return task.arguments.signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise ValidationError(f"wrong arguments of task {task.name!r}: {error}") from error


def _fits(job: EnqueuedJob, source: Any, wanted: dict[str, Any]) -> bool:
    if not isinstance(source, Task | AsyncTask):
        return all(getattr(job, name) == value for name, value in wanted.items())
    task = cast("Any", source)
    if job.task not in (task.name, *task.aliases):
        return False
    if job.payload is None:
        return not wanted
    try:
        there = task.arguments.bound(*task.arguments.read(job.args, job.kwargs))
    except (ValidationError, TypeError):  # A worker would fail this job: its arguments do not fit the task.
        return not wanted
    return all(name in there and there[name] == value for name, value in wanted.items())


def _wanted(source: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return f"{source.name}({given})" if isinstance(source, Task | AsyncTask) else f"a job ({given}) in {source.name!r}"


async def find(
    queue: Queue[Any, Any] | AsyncQueue[Any, Any], mode: Mode, *, after: int = 0, since: datetime | None = None
) -> list[EnqueuedJob]:
    """Read the jobs of a queue after a position, or since a time."""
    ops: Any = queue.storage.operations(mode)
    found: list[EnqueuedJob] = []
    following: int | None = after
    while following is not None:
        wanted = JobFilter(queue.name, created_after=since, after=following, limit=PAGE)
        page, following = await ops.find(wanted)
        for status in page:
            content = await ops.content(queue.name, status.id)
            payload = None if content is None else queue.payload_serde.deserialize(content[0])
            found.append(EnqueuedJob(_read(queue, status), payload))
    return found


def _read(queue: Queue[Any, Any] | AsyncQueue[Any, Any], status: JobStatus) -> JobStatus:
    return status if status.result is None else replace(status, result=queue.result_serde.deserialize(status.result))


async def _last(queue: Queue[Any, Any] | AsyncQueue[Any, Any], mode: Mode) -> int:
    """Return the position of the last job: a full page ends with one."""
    ops = queue.storage.operations(mode)
    last, limit = 0, PAGE
    while True:
        page, following = await ops.find(JobFilter(queue.name, after=last, limit=limit))
        if following is not None:
            last = following
        elif page:
            limit = len(page)
        else:
            return last
