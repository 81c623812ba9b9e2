"""The admin: jobs, queues and schedules, with actions such as retry, cancel and pause.

An action needs the permission to change the model, and is written to the admin's log. Pages show the first backend
whose jobs are in a Django database. A list counts its rows up to 10,000: counting millions would take seconds.
"""

# pyright: basic

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.utils.functional import cached_property
from django.utils.html import format_html

from pgjq.blocking import drive
from pgjq.django.models import Job, Queue, Schedule
from pgjq.django.settings import all_settings, first_place
from pgjq.django.storages import client_of
from pgjq.errors import PgjqError
from pgjq.job import STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.client import Client

COUNTED = 10_000


class BoundedPaginator(Paginator):
    """Counts up to a limit."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or the limit."""
        return len(self.object_list.order_by().values_list("pk")[:COUNTED])


class StateFilter(admin.SimpleListFilter):
    """Jobs in one state."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """Return the states."""
        return [(state, state) for state in STATES]

    def queryset(self, request: Any, queryset: Any) -> Any:
        """Filter."""
        return queryset if self.value() is None else queryset.filter(state=self.value())


class QueueFilter(admin.SimpleListFilter):
    """Jobs of one queue."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        """Return the queues, from their definitions and not from millions of jobs."""
        return [(info.name, info.name) for info in _client().get_queues()]

    def queryset(self, request: Any, queryset: Any) -> Any:
        """Filter."""
        return queryset if self.value() is None else queryset.filter(queue=self.value())


def _client() -> Client:
    return client_of(first_place())


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows rows of a view, with actions for users who may change them."""

    paginator = BoundedPaginator
    show_full_result_count = False

    def get_queryset(self, request: Any) -> Any:
        """Read from the database of the backend."""
        return super().get_queryset(request).using(first_place().database)

    def has_add_permission(self, request: Any) -> bool:
        """Refuse: a view has no rows of its own."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Refuse: a view has no rows of its own."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Refuse: a view has no rows of its own."""
        return False

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        """Return whether the user may look at the rows."""
        return super().has_view_permission(request, obj) or self.has_operate_permission(request)

    def has_operate_permission(self, request: Any) -> bool:
        """Return whether the user may use the actions: the permission to change the model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    def act(self, request: Any, queryset: Any, done: str, change: Callable[[Any], Any]) -> None:
        """Change each row; report how many were changed, and why others were not."""
        changed = 0
        for row in queryset:
            try:
                outcome = change(row)
            except PgjqError as error:
                self.message_user(request, f"{row}: {error}", messages.ERROR)
                continue
            if isinstance(outcome, str):
                self.message_user(request, f"{row}: {outcome}", messages.WARNING)
                continue
            changed += 1
            self.log_change(request, row, done)
        if changed:
            self.message_user(request, f"{done}: {changed}", messages.SUCCESS)


class JobAdmin(ReadOnlyAdmin):
    """Jobs, live and ended."""

    list_display = ("id", "queue", "task", "state", "attempts", "priority", "created_at", "run_at", "worker")
    list_filter = (StateFilter, QueueFilter)
    search_fields = ("id",)
    search_help_text = "The id of a job."
    actions: ClassVar = ["retry", "cancel"]
    readonly_fields = ("payload", "result", "error", "history")

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Find a job by its id, in any queue: an index needs the queues."""
        if not search_term:
            return queryset, False
        return queryset.filter(id=search_term.strip(), queue_id__in=_queue_numbers(queryset.db)), False

    @admin.action(permissions=["operate"], description="Retry selected jobs")
    def retry(self, request: Any, queryset: Any) -> None:
        """Queue failed and cancelled jobs again."""
        client = _client()
        self.act(request, queryset, "retried", lambda job: client.retry(job.queue, job.id))

    @admin.action(permissions=["operate"], description="Cancel selected jobs")
    def cancel(self, request: Any, queryset: Any) -> None:
        """Cancel jobs that wait, and ask those that run to end."""
        client = _client()

        def cancel_one(job: Any) -> str | None:
            status = client.cancel(job.queue, job.id, active=True).status
            return None if status in ("cancelled", "processing") else f"is {status}, and cannot be cancelled"

        self.act(request, queryset, "cancelled", cancel_one)

    def payload(self, job: Any) -> str:
        """Show the payload."""
        ops: Any = _client().storage.operations("sync")
        content = drive(ops.content(job.queue, job.id))
        return _shown(None if content is None else content[0].decode(errors="replace"))

    def result(self, job: Any) -> str:
        """Show the result."""
        status = _client().get_status(job.queue, job.id)
        return _shown(None if status is None else json.dumps(status.result))

    def error(self, job: Any) -> str:
        """Show the last error."""
        status = _client().get_status(job.queue, job.id)
        error = None if status is None else status.error
        return _shown(None if error is None else error.traceback or f"{error.type}: {error.message}")

    def history(self, job: Any) -> str:
        """Show the runs that have ended."""
        attempts = _client().get_attempts(job.queue, job.id)
        lines = (
            f"{run.number}  {run.started_at:%Y-%m-%d %H:%M:%S}  {run.outcome}  {run.worker or ''}"
            f"  {'' if run.error is None else f'{run.error.type}: {run.error.message}'}"
            for run in attempts
        )
        return _shown("\n".join(lines))


class QueueAdmin(ReadOnlyAdmin):
    """Queues and their backlog."""

    list_display = ("queue", "paused", "ready", "processing", "oldest_age", "counted_deferred", "counted_failing")
    actions: ClassVar = ["pause", "resume"]

    @admin.action(permissions=["operate"], description="Pause selected queues")
    def pause(self, request: Any, queryset: Any) -> None:
        """Have workers claim nothing more."""
        client = _client()
        self.act(request, queryset, "paused", lambda row: client.pause_queue(row.queue))

    @admin.action(permissions=["operate"], description="Resume selected queues")
    def resume(self, request: Any, queryset: Any) -> None:
        """Have workers claim again."""
        client = _client()
        self.act(request, queryset, "resumed", lambda row: client.resume_queue(row.queue))


class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules."""

    list_display = (
        "name",
        "queue",
        "cron",
        "every",
        "timezone",
        "paused",
        "next_run_at",
        "last_run_at",
        "last_outcome",
    )
    actions: ClassVar = ["pause", "resume", "trigger"]

    @admin.action(permissions=["operate"], description="Pause selected schedules")
    def pause(self, request: Any, queryset: Any) -> None:
        """Make no more jobs."""
        client = _client()
        self.act(request, queryset, "paused", lambda row: _none(client.pause_schedule(row.name)))

    @admin.action(permissions=["operate"], description="Resume selected schedules")
    def resume(self, request: Any, queryset: Any) -> None:
        """Make jobs again."""
        client = _client()
        self.act(request, queryset, "resumed", lambda row: _none(client.resume_schedule(row.name)))

    @admin.action(permissions=["operate"], description="Run selected schedules now")
    def trigger(self, request: Any, queryset: Any) -> None:
        """Make a job now."""
        client = _client()
        self.act(request, queryset, "triggered", lambda row: _none(client.trigger_schedule(row.name)))


def _none(_done: Any) -> None:
    """Leave out what a change returns: text would be a refusal."""


def _shown(text: str | None) -> Any:
    return "-" if not text else format_html("<pre>{}</pre>", text)


def _queue_numbers(database: str) -> list[int]:
    from django.db import connections

    with connections[database].cursor() as cursor:
        cursor.execute(f'select id from "{first_place().schema}".queue')  # noqa: S608
        return [number for (number,) in cursor.fetchall()]


if any(own.storage is None for own in all_settings()):
    admin.site.register(Job, JobAdmin)
    admin.site.register(Queue, QueueAdmin)
    admin.site.register(Schedule, ScheduleAdmin)
