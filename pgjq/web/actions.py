"""Actions: forms that were posted, are recorded first, and lead back to their page.

Actions on many jobs go through a filter: a page shows how many jobs match and which, and a form on it applies the
action to at most `MOST` of them, in batches. Jobs that were enqueued after the preview are left alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse, Response

from pgjq.errors import JobNotFoundError, PolicyError, QueueNotFoundError, ValidationError
from pgjq.web.query import changes_of, given, link, search_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request

    from pgjq.storage.inspection import FoundJob, JobSearch
    from pgjq.web.access import Visitor
    from pgjq.web.app import Web

MOST: Final = 10_000
BATCH: Final = 500
SECONDS: Final = 20.0
BULK: Final = ("retry", "cancel", "release", "delete")
# The states in which an action on many jobs changes a job.
TAKEN: Final = {
    "retry": ("failed", "cancelled"),
    "cancel": ("queued", "failing"),
    "release": ("processing",),
    "delete": ("queued", "failing", "completed", "failed", "cancelled"),
}


@dataclass(frozen=True, slots=True)
class ActingVisitor:
    """A visitor who acts."""

    web: Web
    visitor: Visitor
    address: str

    async def check(self, action: str, known: tuple[str, ...]) -> None:
        """Refuse what does not exist, and what this visitor or the storage's login may not do."""
        if action not in known:
            raise ValidationError(f"there is no action {action!r} here")
        if action not in await self.web.allowed(self.visitor):
            raise PolicyError(f"{action} is not possible here: the storage, or its login, does not allow it")

    async def act(self, action: str, queue: str, ids: list[str], do: Callable[[], Awaitable[int]]) -> int:
        """Write an action down, take it, and write down how many jobs it changed."""
        name = self.visitor.name
        actor = f"{name} ({self.address})" if name == "token" else name
        number = await self.web.inspection.begin_action(actor, action, queue, ids)
        count = 0
        try:
            count = await do()
        finally:
            await self.web.inspection.end_action(number, count)
        return count


def _acting(web: Web, request: Request, visitor: Visitor) -> ActingVisitor:
    return ActingVisitor(web, visitor, request.client.host if request.client else "unknown")


async def act_on_job(web: Web, request: Request, visitor: Visitor, form: dict[str, str]) -> Response:
    """Retry, cancel, release, reschedule or delete one job."""
    action, queue, job_id = form.get("action", ""), form.get("queue", ""), form.get("id", "")
    acting = _acting(web, request, visitor)
    await acting.check(action, tuple(ON_A_JOB))
    if await web.inspection.status(queue, job_id) is None:
        raise JobNotFoundError(f"there is no job {job_id!r} in queue {queue!r}")
    do = partial(ON_A_JOB[action], web, queue, job_id)
    if action == "reschedule":
        do = partial(do, **changes_of(form))
    count = await acting.act(action, queue, [job_id], do)
    here = link("queue", name=queue) if action == "delete" else link("job", queue=queue, id=job_id)
    return _back(here, action, count)


async def _retry(web: Web, queue: str, job_id: str) -> int:
    return int((await web.client.retry(queue, job_id)).state == "queued")


async def _cancel(web: Web, queue: str, job_id: str) -> int:
    status = (await web.client.cancel(queue, job_id, active=True)).status
    if status not in ("cancelled", "processing"):
        raise PolicyError(f"job {job_id!r} cannot be cancelled: {status}")
    return 1


async def _delete(web: Web, queue: str, job_id: str) -> int:
    if not await web.client.delete_job(queue, job_id):
        raise PolicyError(f"job {job_id!r} is running, or no longer exists")
    return 1


async def _release(web: Web, queue: str, job_id: str) -> int:
    if not await web.client.release(queue, job_id):
        raise PolicyError(f"job {job_id!r} is no longer running")
    return 1


async def _reschedule(web: Web, queue: str, job_id: str, **changes: Any) -> int:
    await web.client.reschedule(queue, job_id, **changes)
    return 1


ON_A_JOB: Final[dict[str, Callable[..., Awaitable[int]]]] = {
    "retry": _retry,
    "cancel": _cancel,
    "release": _release,
    "reschedule": _reschedule,
    "delete": _delete,
}


async def act_on_queue(web: Web, request: Request, visitor: Visitor, form: dict[str, str]) -> Response:
    """Pause, resume or redrive a queue."""
    action, queue = form.get("action", ""), form.get("queue", "")
    acting = _acting(web, request, visitor)
    await acting.check(action, ("pause", "resume", "redrive"))
    if not await web.inspection.queues(queue=queue, limit=1):
        raise QueueNotFoundError(f"there is no queue {queue!r}")

    async def do() -> int:
        if action == "redrive":
            return await web.client.redrive(queue)
        await (web.client.pause_queue(queue) if action == "pause" else web.client.resume_queue(queue))
        return 0

    return _back(link("queue", name=queue), action, await acting.act(action, queue, [], do))


async def act_on_schedule(web: Web, request: Request, visitor: Visitor, form: dict[str, str]) -> Response:
    """Pause, resume or run a schedule."""
    action, name = form.get("action", ""), form.get("name", "")
    methods = {"pause": "pause_schedule", "resume": "resume_schedule", "run": "trigger_schedule"}
    if not web.has_definitions or action not in methods:
        raise ValidationError(f"there is no action {action!r} for schedules")
    acting = _acting(web, request, visitor)
    await acting.check("schedule", ("schedule",))
    client: Any = web.client
    queue = (await client.get_schedule(name)).queue

    async def do() -> int:
        await getattr(client, methods[action])(name)
        return int(action == "run")

    return _back("schedules", action, await acting.act(f"{action} schedule {name}", queue, [], do))


async def act_on_many(web: Web, request: Request, visitor: Visitor, form: dict[str, str]) -> Response:
    """Apply an action to the jobs that match a filter."""
    action, filled = form.get("action", ""), given(form)
    acting = _acting(web, request, visitor)
    await acting.check("retry_many" if action == "retry" else action, ("retry_many", *BULK[1:]))
    wanted = search_of(filled)
    if wanted.created_before is None:
        raise ValidationError("this form lacks the time of its preview; open the preview again")
    done = 0
    async for batch, _ in matching(web, wanted, action, time.monotonic() + SECONDS):
        done += await _act_on_batch(acting, action, batch)
    return _back(link("jobs", **{name: filled[name] for name in filled if name != "older"}), action, done)


async def matching(
    web: Web, wanted: JobSearch, action: str, until: float
) -> AsyncGenerator[tuple[list[FoundJob], bool]]:
    """Yield batches of jobs that match a filter and may be changed, and whether that was all.

    It yields `MOST` jobs at the most, and none after the time `until`, except for the first batch.
    """
    after: str | None = None
    total = 0
    while total < MOST and (after is None or time.monotonic() < until):
        page = await web.inspection.search(wanted, after, min(BATCH, MOST - total))
        batch = [job for job in page.jobs if job.status.state in TAKEN[action]]
        total += len(batch)
        after = page.next
        yield batch, after is None
        if after is None:
            return


async def _act_on_batch(acting: ActingVisitor, action: str, batch: list[FoundJob]) -> int:
    by_queue: defaultdict[str, list[str]] = defaultdict(list)
    for job in batch:
        by_queue[job.status.queue].append(job.status.id)
    ops = acting.web.client.storage.operations("async")
    do = {"retry": ops.retry_many, "cancel": ops.cancel_many, "release": ops.release, "delete": ops.delete}[action]
    done = 0
    for queue, ids in by_queue.items():
        done += await acting.act(action, queue, ids, partial(do, queue, ids))
    return done


def _back(target: str, action: str, count: int) -> Response:
    joint = "&" if "?" in target else "?"
    return RedirectResponse(f"{target}{joint}did={action}&count={count}", 303)


ACTIONS: Final[dict[str, Callable[..., Awaitable[Response]]]] = {
    "/act-job": act_on_job,
    "/act-queue": act_on_queue,
    "/act-schedule": act_on_schedule,
    "/act-many": act_on_many,
}
