"""The pages, one function each; they read through the inspection, which bounds the cost."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pgjq.doctor import Thresholds, examine, recent_failures
from pgjq.doctor.failure_groups import groups_of
from pgjq.errors import JobNotFoundError, QueueNotFoundError, UnsupportedError, ValidationError
from pgjq.job import STATES
from pgjq.storage.inspection import JobSearch
from pgjq.web import actions
from pgjq.web.charts import charts_of
from pgjq.web.findings import findings
from pgjq.web.formatting import SHOWN_BYTES, readable
from pgjq.web.query import FIELDS, given, is_empty, search_of
from pgjq.web.timeline import are_left_out, timeline_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from pgjq.storage.inspection import FoundJob
    from pgjq.web.access import Visitor
    from pgjq.web.app import Web

QUEUES: Final = 100
JOBS: Final = 50
WORKERS: Final = 200
TROUBLES: Final = 50
FAILURES: Final = 500
MINUTES: Final = 60
PREVIEW_SECONDS: Final = 0.08
_DONE: Final = {
    "retry": "queued again",
    "cancel": "cancelled, or asked to stop",
    "release": "taken away from workers and queued again",
    "reschedule": "changed",
    "delete": "deleted",
    "redrive": "sent back to where they came from",
}

# The page behind a check of the doctor.
_BEHIND: Final = {
    "queues": "./",
    "blocked": "./",
    "failures": "failures",
    "workers": "workers",
    "leader": "workers",
    "stalled": "jobs?state=processing",
    "tasks": "jobs?state=queued",
}


async def overview(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show all queues, what is wrong, and how jobs flow."""
    name = request.query_params.get("q") or None
    read = web.inspection
    queues, totals = await read.queues(name=name, limit=QUEUES), await read.totals()
    workers, stalled = await read.workers(WORKERS), await read.stalled(TROUBLES)
    blocked = await read.blocked(None, TROUBLES)
    failures = await recent_failures(read, Thresholds().failure_age, TROUBLES)
    return await web.render(
        "overview.html",
        visitor,
        request,
        queues=queues,
        totals=totals,
        workers=workers,
        served=_served(workers),
        findings=findings(queues, workers, stalled, blocked, failures),
        charts=charts_of(await read.minutes(None, MINUTES), MINUTES, None),
        name=name or "",
    )


async def queue(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show one queue."""
    name = _asked(request, "name")
    found = await web.inspection.queues(queue=name, limit=1)
    if not found:
        raise QueueNotFoundError(f"there is no queue {name!r}; the first enqueue, or create_queue, makes one")
    workers = [worker for worker in await web.inspection.workers(WORKERS) if name in worker.queues]
    blocked = await web.inspection.blocked(name, TROUBLES)
    stalled = [job for job in await web.inspection.stalled(TROUBLES) if job.queue == name]
    failures = await recent_failures(web.inspection, Thresholds().failure_age, TROUBLES, queue=name)
    span = 24 * 60 if request.query_params.get("span") == "day" else MINUTES
    return await web.render(
        "queue.html",
        visitor,
        request,
        queue=found[0],
        definition=await _definition(web, name),
        workers=workers,
        blocked=blocked,
        findings=findings(found, workers, stalled, blocked, failures),
        charts=charts_of(await web.inspection.minutes(name, span), span, name),
        span=span,
        jobs=(await web.inspection.search(JobSearch(queue=name), None, 10)).jobs,
    )


async def jobs(web: Web, request: Request, visitor: Visitor) -> Response:
    """Find jobs."""
    filled = given(request.query_params)
    page = await web.inspection.search(search_of(filled), request.query_params.get("after") or None, JOBS)
    return await web.render(
        "jobs.html",
        visitor,
        request,
        filled=filled,
        field={name: filled.get(name, "") for name in FIELDS},
        page=page,
        states=STATES,
        taken=actions.TAKEN,
        is_first="after" not in request.query_params,
    )


async def bulk(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show how many jobs an action would change, and which."""
    action, filled = _asked(request, "action"), given(request.query_params)
    if action not in actions.BULK:
        raise ValidationError(f"there is no action {action!r} for many jobs")
    wanted = search_of(filled)
    if is_empty(wanted):
        raise ValidationError("say which jobs: a queue, a state, a key, an error or an age")
    made_at = wanted.created_before or datetime.now(UTC)
    found: list[FoundJob] = []
    is_part = True
    wanted, until = replace(wanted, created_before=made_at), time.monotonic() + PREVIEW_SECONDS
    async for batch, is_all in actions.matching(web, wanted, action, until):
        found, is_part = [*found, *batch], not is_all
    return await web.render(
        "bulk.html", visitor, request, action=action, filled={**filled, "older": made_at.isoformat()}, found=found,
        is_part=is_part, most=actions.MOST, asked=filled,
    )  # fmt: skip


async def job(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show one job."""
    name, job_id = _asked(request, "queue"), _asked(request, "id")
    status = await web.inspection.status(name, job_id)
    if status is None:
        raise JobNotFoundError(f"there is no job {job_id!r} in queue {name!r}; its record may have been pruned")
    may_read = visitor.may_read_content and (await web.rights()).content
    content = await web.inspection.content(name, job_id, SHOWN_BYTES) if may_read else None
    attempts = await web.inspection.attempts(name, job_id)
    return await web.render(
        "job.html",
        visitor,
        request,
        job=status,
        are_left_out=are_left_out(attempts),
        may_read=may_read,
        payload=readable(content.payload, content.payload_size) if content else None,
        checkpoint=readable(content.checkpoint, content.checkpoint_size) if content and content.checkpoint else None,
        result=readable(status.result) if may_read and status.result is not None else None,
        steps=timeline_of(status, attempts),
        dead_letter=getattr(await _definition(web, name), "dead_letter", None) if status.state == "failed" else None,
    )


async def failures(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show failures, grouped by error."""
    name = request.query_params.get("queue") or None
    failed = await web.inspection.search(JobSearch(queue=name, state="failed"), None, FAILURES)
    failing = await web.inspection.search(JobSearch(queue=name, state="failing"), None, FAILURES)
    found = [*failed.jobs, *failing.jobs]
    return await web.render(
        "failures.html", visitor, request, groups=groups_of(found), looked_at=len(found), queue=name,
        is_part=failed.next is not None or failing.next is not None,
    )  # fmt: skip


async def workers(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show workers and leaders."""
    return await web.render(
        "workers.html",
        visitor,
        request,
        workers=await web.inspection.workers(WORKERS),
        leaders=await web.inspection.leaders(),
        stalled=await web.inspection.stalled(TROUBLES),
        most=WORKERS,
    )


async def schedules(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show the schedules, where the storage has them."""
    if not web.has_definitions:
        raise UnsupportedError("this storage has no schedules")
    client: Any = web.client
    return await web.render("schedules.html", visitor, request, schedules=await client.get_schedules())


async def doctor(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show the findings of the doctor."""
    found = await examine(web.client.storage)
    troubles = sorted((f for f in found if f.level != "ok"), key=lambda f: f.level != "error")
    return await web.render("doctor.html", visitor, request, found=found, troubles=troubles, pages=_BEHIND)


async def audit(web: Web, request: Request, visitor: Visitor) -> Response:
    """Show what people did on this page."""
    if not (await web.rights()).audit:
        raise UnsupportedError("this login may not read the audit log; docs/roles.md says which may")
    before = request.query_params.get("before", "")
    name = request.query_params.get("queue") or None
    number = int(before) if before.isdecimal() else None
    entries = await web.inspection.audit(queue=name, before=number, limit=JOBS)
    return await web.render("audit.html", visitor, request, entries=entries, full=len(entries) == JOBS, queue=name)


def done_text(params: Mapping[str, str]) -> str:
    """Return what an action did, from a fixed set of sentences."""
    action, count = params.get("did", ""), params.get("count", "")
    if action in ("pause", "resume"):
        return "Paused. Running jobs go on." if action == "pause" else "Resumed."
    if action in _DONE and count.isdecimal() and len(count) < 12:  # noqa: PLR2004
        return f"{int(count):,} {'job' if int(count) == 1 else 'jobs'} {_DONE[action]}."
    return "Done." if action == "run" else ""


def _asked(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise ValidationError(f"the address lacks {name}=…")
    return value


def _served(workers: Any) -> dict[str, int]:
    served: dict[str, int] = {}
    for worker in workers:
        for name in worker.queues if worker.alive else ():
            served[name] = served.get(name, 0) + 1
    return served


async def _definition(web: Web, name: str) -> Any:
    return await web.client.get_queue(name) if web.has_definitions else None


PAGES: Final[dict[str, Callable[..., Awaitable[Response]]]] = {
    "/": overview,
    "/queue": queue,
    "/jobs": jobs,
    "/bulk": bulk,
    "/job": job,
    "/failures": failures,
    "/workers": workers,
    "/schedules": schedules,
    "/doctor": doctor,
    "/audit": audit,
}
