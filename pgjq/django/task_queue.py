"""A queue whose jobs are calls of Django tasks, and what a worker does with one of them.

Each run has a thread of the worker, and so a database connection of its own. A coroutine function runs on an event loop
of that thread; the abort signal cancels it. A job whose task cannot be imported is put back, as one of an unknown task:
during a deployment it waits for a newer worker. Signals: `task_started` at each attempt, `task_finished` when the task
has succeeded or failed for good, before that is recorded. An exception of a receiver is logged and changes nothing.
"""

# pyright: basic

from __future__ import annotations

import asyncio
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.utils import timezone

from pgjq.django.connections import clean_connections
from pgjq.django.results import UNCOUNTED, find_task, make_result, result_id, to_error
from pgjq.django.tasks_framework import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from pgjq.outcome import Failed, describe, fail
from pgjq.queue import Queue
from pgjq.tasks.dispatch import PutBack
from pgjq.worker.abort_signal import LEASE_LOST
from pgjq.worker.periodic_thread import call_on_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.django.backend import PgjqBackend
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Claimed, Storage
    from pgjq.worker.handler import Consumer
    from pgjq.worker.job import Job


class NotRetried(Exception):
    """The task has run, but its result cannot be stored (see the cause): do not repeat the work."""


class DjangoQueue(Queue):
    """Runs the Django tasks of one queue name of a backend."""

    def __init__(self, backend: PgjqBackend, name: str, storage: Storage, **options: Any) -> None:
        super().__init__(name, storage=storage, **options)
        self._backend = backend
        self._put_back = PutBack(self)
        self.execute(self._run)

    def consumer(self, middleware: Sequence[Any] = ()) -> Consumer | None:
        """Return how this queue runs its jobs: one handler, with the retry rule of each task."""
        made = super().consumer(middleware)
        return made and replace(made, default=replace(made.default, decide=self._decide))

    def _run(self, job: Job) -> Any:
        task = find_task(job.task)
        if task is None:
            self._put_back.in_sync_mode(job, reason="unknown_task")
        with clean_connections():
            return _Run(self._backend, self, job, task).run()

    def _decide(self, error: BaseException, claimed: Claimed) -> Outcome | None:
        """Return the outcome of a run that raised, by its task; None for the job's retry policy."""
        if isinstance(error, NotRetried):
            return fail(error.__cause__ or error)
        task = find_task(claimed.task)
        return None if task is None else self._backend.plan(task).rule.decide(error, claimed)


class _Run:
    """One run of a task: its TaskResult, the signals, the call."""

    def __init__(self, backend: PgjqBackend, queue: DjangoQueue, job: Job, task: Any) -> None:
        self._sender, self._job, self._queue = type(backend), job, queue
        self._task = task.using(queue_name=job.queue, backend=backend.alias)
        self._result = self._make_result()

    def _make_result(self) -> Any:
        job, now = self._job, timezone.now()
        # The history of a job that runs for the first time is empty: most runs need not read it.
        attempts = self._queue.client.get_attempts(job.queue, job.id) if job.lease > 1 else []
        counted = [attempt for attempt in attempts if attempt.outcome not in UNCOUNTED]
        return make_result(
            self._task,
            result_id(job.queue, job.id),
            job.payload,
            status=TaskResultStatus.RUNNING,
            enqueued_at=job.created_at,
            started_at=counted[0].started_at if counted else now,
            last_attempted_at=now,
            errors=[to_error(attempt.error) for attempt in counted if attempt.error is not None],
            worker_ids=[*(attempt.worker or "" for attempt in counted), job.worker],
        )

    def run(self) -> Any:
        """Call the task and return its result, with the signals around it."""
        task_started.send_robust(self._sender, task_result=self._result)
        try:
            value = self._json(self._call())
        except BaseException as error:
            self._failed(error)
            raise
        object.__setattr__(self._result, "_return_value", value)
        self._finished(TaskResultStatus.SUCCESSFUL)
        return value

    def _call(self) -> Any:
        function = self._task.func
        context = [TaskContext(task_result=self._result)] if self._task.takes_context else []
        args, kwargs = [*context, *self._result.args], self._result.kwargs
        if iscoroutinefunction(function):
            return async_to_sync(self._cancellable)(function, args, kwargs)
        return function(*args, **kwargs)

    async def _cancellable(self, function: Any, args: Any, kwargs: Any) -> Any:
        loop, running = asyncio.get_running_loop(), asyncio.ensure_future(function(*args, **kwargs))

        def cancel() -> None:
            call_on_loop(loop, running.cancel)

        self._job.signal.on_abort(cancel)
        return await running

    def _json(self, value: Any) -> Any:
        try:
            return normalize_json(value)
        except (TypeError, ValueError) as error:
            raise NotRetried from error

    def _failed(self, error: BaseException) -> None:
        """Send `task_finished` if no attempt is left, while the exception is handled."""
        if isinstance(self._job.outcome_of(error), Failed):
            recorded = error.__cause__ if isinstance(error, NotRetried) and error.__cause__ else error
            kind, described = type(recorded), describe(recorded)
            path = f"{kind.__module__}.{kind.__qualname__}"
            self._result.errors.append(TaskError(exception_class_path=path, traceback=described.traceback or ""))
            self._finished(TaskResultStatus.FAILED)

    def _finished(self, status: Any) -> None:
        if self._job.signal.reason != LEASE_LOST:  # Else another worker has the job, and its outcome counts.
            object.__setattr__(self._result, "finished_at", timezone.now())
            object.__setattr__(self._result, "status", status)
            task_finished.send_robust(self._sender, task_result=self._result)
