"""Middleware: code around every run and every enqueue of a queue.

A middleware is an object with a method `run(job, call_next)`, a method `enqueue(new_job, call_next)`, or both, plain or
async. Each goes on with `call_next(job)`; the first of a list is the outermost.

* `run` surrounds the handler or task, and returns its result. Plain functions and coroutines mix: a plain `run` around
  a coroutine blocks a thread, not the event loop. A middleware that also has a coroutine function `run_async` gets
  coroutines there, and needs no thread. A context variable set in one is seen by what it calls.
* `enqueue` sees each `NewJob`, with its id, before the storage does, and may pass on another one or raise. The jobs are
  written together after that: `call_next` returns `EnqueueResult("queued", id)`, and `enqueue` or `enqueue_many`
  returns what the storage answered. A middleware that does not call `call_next` keeps its job out, and returns the
  `EnqueueResult` to answer with.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pgjq.blocking import drive
from pgjq.errors import ValidationError
from pgjq.job import EnqueueResult
from pgjq.worker.current_job import set_current_job
from pgjq.worker.job import as_async, as_sync
from pgjq.worker.loop_bridge import Bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pgjq.blocking import Mode
    from pgjq.job import NewJob
    from pgjq.storage.base import Storage
    from pgjq.worker.handler import Target


def check_middleware(middleware: Any) -> tuple[Any, ...]:
    """Return middleware as a tuple; each must have `run` or `enqueue`."""
    try:
        found = tuple(middleware)
    except TypeError as error:
        raise ValidationError(f"middleware must be a list of objects, not {type(middleware).__name__}") from error
    for item in found:
        if not any(callable(getattr(item, name, None)) for name in ("run", "enqueue")) or isinstance(item, type):
            raise ValidationError(f"middleware is an object with run(job, call_next) or enqueue(…), not {item!r}")
    return found


class RunChain:
    """Puts middleware around the targets of a queue; made on the worker's loop."""

    def __init__(self, middleware: Sequence[Any], storage: Storage) -> None:
        self._runs = [item for item in middleware if hasattr(item, "run")]
        self._storage = storage
        self._loop = asyncio.get_running_loop()

    def around(self, target: Target) -> Target:
        """Return a target that calls the middleware, which calls this one."""
        for item in reversed(self._runs):
            in_async_mode = getattr(item, "run_async", None) if target.is_coroutine else None
            target = self._wrap(in_async_mode or item.run, target)
        return target

    def _wrap(self, run: Callable[..., Any], inner: Target) -> Target:
        match inspect.iscoroutinefunction(run), inner.is_coroutine:
            case (True, True) | (False, False):
                return replace(inner, call=partial(_go_on_with, run, inner.call))
            case False, True:
                return replace(inner, call=partial(self._plain_around_coroutine, run, inner.call), is_coroutine=False)
            case _:
                return replace(inner, call=partial(self._coroutine_around_plain, run, inner.call))

    def _plain_around_coroutine(self, run: Callable[..., Any], inner: Callable[[Any], Any], job: Any) -> Any:
        def call_next(job: Any) -> Any:
            return Bridge(self._loop, job.signal).run(_await(inner, as_async(job, self._storage)))

        return run(job, call_next)

    def _coroutine_around_plain(self, run: Callable[..., Any], inner: Callable[[Any], Any], job: Any) -> Any:
        bridge = Bridge(self._loop, job.signal)

        async def call_next(job: Any) -> Any:
            return await bridge.call(partial(_call, inner), as_sync(job, self._storage))

        return bridge.run(_await(partial(_go_on_with, run, call_next), as_async(job, self._storage)))


def _go_on_with(run: Callable[..., Any], call_next: Callable[[Any], Any], job: Any) -> Any:
    return run(job, call_next)


async def _await(function: Callable[[Any], Coroutine[Any, Any, Any]], job: Any) -> Any:
    set_current_job(job)
    return await function(job)


def _call(function: Callable[[Any], Any], job: Any) -> Any:
    set_current_job(job)
    return function(job)


class EnqueueChain:
    """Passes jobs through middleware before they are enqueued."""

    def __init__(self, middleware: Sequence[Any]) -> None:
        self._enqueues = [item.enqueue for item in middleware if hasattr(item, "enqueue")]
        self._async_from = max(
            (n + 1 for n, e in enumerate(self._enqueues) if inspect.iscoroutinefunction(e)), default=0
        )

    def __bool__(self) -> bool:
        return bool(self._enqueues)

    async def send(self, jobs: Sequence[NewJob], mode: Mode) -> list[NewJob | EnqueueResult]:
        """Return the jobs to enqueue, and instead of a job that a middleware kept out its answer."""
        passing = self._send(jobs)
        return _complete(passing) if mode == "sync" and self._async_from else await passing

    async def _send(self, jobs: Sequence[NewJob]) -> list[NewJob | EnqueueResult]:
        return [await self._pass(job, 0) for job in jobs]

    async def _pass(self, job: NewJob, place: int) -> NewJob | EnqueueResult:
        """Pass a job through the middleware from a place on."""
        if place == len(self._enqueues):
            return job
        passed: list[NewJob | EnqueueResult] = []
        enqueue = self._enqueues[place]
        if inspect.iscoroutinefunction(enqueue):
            answer = await enqueue(job, partial(self._go_on, place + 1, passed))
        elif place >= self._async_from:
            answer = enqueue(job, partial(_drive, partial(self._go_on, place + 1, passed)))
        else:  # A plain function cannot wait for a coroutine: what follows is called after it.
            answer = enqueue(job, partial(_keep, passed))
            passed = [await self._pass(each, place + 1) for each in passed if not isinstance(each, EnqueueResult)]
        return passed[-1] if passed else _check_answer(job, answer)

    async def _go_on(self, place: int, passed: list[NewJob | EnqueueResult], job: NewJob) -> EnqueueResult:
        passed.append(following := await self._pass(job, place))
        return following if isinstance(following, EnqueueResult) else EnqueueResult("queued", following.id or "")


def _drive(following: Callable[[NewJob], Coroutine[Any, Any, EnqueueResult]], job: NewJob) -> EnqueueResult:
    return drive(following(job))


def _keep(passed: list[NewJob | EnqueueResult], job: NewJob) -> EnqueueResult:
    passed.append(job)
    return EnqueueResult("queued", job.id or "")


def _check_answer(job: NewJob, answer: Any) -> EnqueueResult:
    if not isinstance(answer, EnqueueResult):
        raise ValidationError(
            f"middleware kept job {job.id!r} out and returned {answer!r:.60}: return call_next(new_job), or an"
            " EnqueueResult"
        )
    return cast("EnqueueResult", answer)


def _complete(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end while the caller waits, on a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1, "pgjq middleware") as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
