"""The backend of Django's tasks framework: tasks become jobs, and jobs are read as results."""

# pyright: basic

from __future__ import annotations

from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.utils import timezone

from pgjq.blocking import drive
from pgjq.django.checks import check_settings
from pgjq.django.results import make_result, parse_result_id, result_id, to_result
from pgjq.django.settings import BackendSettings
from pgjq.django.storages import client_of
from pgjq.django.task import PgjqTask, make_plan
from pgjq.django.tasks_framework import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from pgjq.client import Client
    from pgjq.django.task import Plan
    from pgjq.job import CancelResult, JobStatus


class PgjqBackend(BaseTaskBackend):
    """Keeps the tasks of Django as jobs of pgjq.

    On the Django database (the default), an enqueue is part of the transaction of Django's connection: a transaction
    that is rolled back enqueues nothing. On another storage (`OPTIONS={"storage": "redis://…"}`), the job is enqueued
    when the transaction commits.
    """

    task_class = PgjqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def settings(self) -> BackendSettings:
        """The OPTIONS; ValidationError if they are invalid, which the system checks report."""
        return BackendSettings.read(self.options)

    @property
    def client(self) -> Client:
        """A client for this thread: on its Django connection, inside its transaction."""
        return client_of(self.settings)

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for a task that this backend cannot run, or whose options are invalid."""
        super().validate_task(task)
        try:
            self.plan(task)
        except ValidationError as error:
            raise InvalidTask(str(error)) from error

    def plan(self, task: Any) -> Plan:
        """Return a task's checked options: of OPTIONS, then of OPTIONS["tasks"], then its own."""
        own = task.chosen_options() if isinstance(task, PgjqTask) else {}
        return make_plan(task, {**self.settings.options_of(task.module_path), **own})

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a call of a task; return its result, or that of the job with the same id."""
        self.validate_task(task)
        payload = {"task": task.module_path, "args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
        job = self.plan(task).new_job(payload, args, kwargs, priority=task.priority, **_run_at(task))
        values = {"status": TaskResultStatus.READY, "enqueued_at": timezone.now()}
        result = make_result(task, result_id(task.queue_name, job.id or ""), payload, **values)
        existing = self._add(task.queue_name, job)
        if existing is not None:
            return self.get_result(result_id(task.queue_name, existing))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _add(self, queue: str, job: Any) -> str | None:
        """Enqueue a job in the transaction of Django's connection; return the id of the job."""
        own = self.settings
        if own.storage is None:
            (added,) = self.client.enqueue_many(queue, [job], connection=connections[own.database])
            return None if added.status == "queued" else added.id
        transaction.on_commit(lambda: client_of(own).enqueue_many(queue, [job]), using=own.database)
        return None

    def get_result(self, result_id: Any) -> Any:
        """Return a result by its id; TaskResultDoesNotExist if there is none."""
        queue, job_id = parse_result_id(result_id)
        client = self.client
        try:
            status = client.get_status(queue, job_id)
        except ValidationError as error:
            raise TaskResultDoesNotExist(result_id) from error
        if status is None:
            raise TaskResultDoesNotExist(result_id)
        return to_result(self.alias, status, _payload(client, status), client.get_attempts(queue, job_id))

    def cancel(self, result_id: str, *, active: bool = False) -> CancelResult:
        """Cancel a task that waits; with `active`, ask one that runs to end. See `Client.cancel`."""
        queue, job_id = parse_result_id(result_id)
        return self.client.cancel(queue, job_id, active=active)

    def retry(self, result_id: str) -> None:
        """Queue a failed or cancelled task again, with all its attempts."""
        queue, job_id = parse_result_id(result_id)
        self.client.retry(queue, job_id)

    def check(self, **kwargs: Any) -> Any:
        """Return the findings of the system checks."""
        del kwargs
        return check_settings(self)


def _payload(client: Client, status: JobStatus) -> Any:
    """Return the payload of a job; only its task if the storage has dropped the payload."""
    ops: Any = client.storage.operations("sync")
    content = drive(ops.content(status.queue, status.id))
    return {"task": status.task} if content is None else client.payload_serde.deserialize(content[0])


def _run_at(task: Any) -> dict[str, Any]:
    """Return the time of a task as an option of its job: an aware one, also with USE_TZ=False."""
    if task.run_after is None:
        return {}
    aware = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
    return {"run_at": aware.astimezone(UTC)}
