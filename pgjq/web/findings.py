"""Problems, in sentences that say what to do, for the overview and a queue's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgjq.doctor.failure_groups import groups_of
from pgjq.web.formatting import duration
from pgjq.web.query import link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.job import WorkerInfo
    from pgjq.storage.inspection import BlockedKey, FoundJob, QueueOverview, Stalled

MOST: Final = 8
SHOWN: Final = 12
GROUPS: Final = 3
OLD: Final = 300.0  # Seconds that a ready job may wait before it is worth a line.


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, what to do about it, and a page that shows more."""

    level: str
    text: str
    advice: str
    link: str


def findings(
    queues: Sequence[QueueOverview],
    workers: Sequence[WorkerInfo],
    stalled: Sequence[Stalled],
    blocked: Sequence[BlockedKey],
    failures: Sequence[FoundJob],
) -> list[Finding]:
    """List what is wrong, the worst first."""
    served = {name for worker in workers if worker.alive for name in worker.queues}
    found = [*_stalled(stalled), *_blocked(blocked), *_silent(workers)]
    for queue in queues:
        is_dead = queue.takes_dead_letters and queue.name not in served
        found += _dead_letters(queue) if is_dead else _of_queue(queue, is_served=queue.name in served)
    found += _failures(failures)
    found.sort(key=lambda finding: finding.level != "error")
    if len(found) > SHOWN:
        more = Finding("warning", f"{len(found) - SHOWN} more findings", "The tables below show them.", "doctor")
        return [*found[:SHOWN], more]
    return found


def _of_queue(queue: QueueOverview, *, is_served: bool) -> Iterator[Finding]:
    here = link("queue", name=queue.name)
    waiting = f"{queue.ready_text} {'job waits' if queue.ready == 1 else 'jobs wait'}"
    if queue.paused and queue.ready:
        text = f"{queue.name} is paused, and {waiting}"
        yield Finding("warning", text, "Resume it when they may run.", here)
    elif queue.ready and not is_served:
        yield Finding("error", f"no worker serves {queue.name}, and {waiting}",
                      "Start one: pgjq worker MODULE:QUEUE, with the module that has its handler.", here)  # fmt: skip
    elif queue.oldest is not None and queue.oldest > OLD:
        text = f"the oldest job of {queue.name} has waited {duration(queue.oldest)}"
        yield Finding("warning", text, "Add workers or raise --concurrency, or see what keeps them busy.", here)


def _dead_letters(queue: QueueOverview) -> Iterator[Finding]:
    if queue.ready:
        text = f"{queue.ready_text} {'dead letter waits' if queue.ready == 1 else 'dead letters wait'} in {queue.name}"
        here = link("queue", name=queue.name)
        yield Finding("warning", text, "Mend what made them fail, then redrive them.", here)


def _failures(jobs: Sequence[FoundJob]) -> Iterator[Finding]:
    for group in groups_of(jobs)[:GROUPS]:
        advice = f"{group.remedy} A job's page shows its runs and tracebacks, and retries it."
        queue = next(iter(group.queues)) if len(group.queues) == 1 else None
        yield Finding("warning", group.summary, advice, link("jobs", error=group.text, queue=queue))


def _stalled(stalled: Sequence[Stalled]) -> Iterator[Finding]:
    if stalled:
        job = stalled[0]
        jobs = "1 running job is" if len(stalled) == 1 else f"{len(stalled)} running jobs are"
        text = f"{jobs} overdue; {job.id} of {job.queue} for {duration(job.overdue)}"
        yield Finding("error", text, "No reaper has taken them back: start a worker or pgjq reaper.",
                      link("jobs", state="processing"))  # fmt: skip


def _blocked(blocked: Sequence[BlockedKey]) -> Iterator[Finding]:
    for key in blocked[:MOST]:
        text = f"key {key.key} of {key.queue} is blocked by job {key.id}, which is {key.state}"
        waiting = "" if not key.waiting else f" {key.waiting} jobs wait behind it."
        yield Finding("error", text, f"Retry or delete that job.{waiting}", link("job", queue=key.queue, id=key.id))


def _silent(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    silent = [worker for worker in workers if not worker.alive]
    if silent:
        names = ", ".join(worker.id for worker in silent[:3])
        workers_text = "1 worker" if len(silent) == 1 else f"{len(silent)} workers"
        text = f"{workers_text} went silent without stopping: {names}{' …' if len(silent) > 3 else ''}"  # noqa: PLR2004
        yield Finding(
            "warning",
            text,
            "They were killed or lost the network: read their logs. Other workers of their queues run their jobs.",
            "workers",
        )
