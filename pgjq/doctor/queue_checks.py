"""Judgements of workers, queues, tasks and jobs: pure functions of what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgjq.doctor.finding import Finding, worst

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pgjq.doctor.finding import Thresholds
    from pgjq.job import WorkerInfo
    from pgjq.storage.doctor_facts import PutBackTask, WorkerSilence
    from pgjq.storage.inspection import BlockedKey, Leader, QueueOverview, Stalled

NAMED: Final = 3  # Names in a message; the rest is counted.
QUEUES: Final = 10  # Queues with a finding of their own; the rest is counted.


def judge_leader(leaders: Sequence[Leader], workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Judge the election: while workers run, one of them leads the maintenance."""
    holders = {leader.role: leader.holder for leader in leaders}
    if "maintenance" not in holders:
        return
    alive = [worker for worker in workers if worker.alive]
    if holders["maintenance"] is None and alive:
        yield Finding(
            "leader",
            "warning",
            f"{_many(len(alive), 'worker')} run, and none of them leads the maintenance",
            "A new leader is elected within half a minute. If none is, give workers a direct connection: behind a "
            "transaction pooler none can lead. Until then nothing is pruned or counted.",
        )
        return
    leads = holders["maintenance"] or "no worker runs, so none is needed"
    yield Finding("leader", "ok", f"maintenance: {leads}")


def judge_silences(silences: Sequence[WorkerSilence], limits: Thresholds) -> Iterator[Finding]:
    """Judge workers by their own heartbeat intervals."""
    silent = [s for s in silences if s.silent_for > limits.silent_heartbeats * s.heartbeat]
    named = [f"{s.worker} for {_seconds(s.silent_for)}" for s in silent]
    yield from _silent(named, len(silences))


def judge_workers(workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Judge workers of a storage that tells only whether they are alive."""
    yield from _silent([worker.id for worker in workers if not worker.alive], len(workers))


def _silent(named: Sequence[str], count: int) -> Iterator[Finding]:
    if named:
        yield Finding(
            "workers",
            "warning",
            f"{_many(len(named), 'worker')} went silent without stopping: {_some(named)}",
            "They were killed, or cannot reach the storage: read their logs, and start others. Reapers give their jobs "
            "to other workers.",
        )
    else:
        yield Finding("workers", "ok", f"{_many(count, 'worker')} alive" if count else "no worker has run within a day")


def judge_queues(
    queues: Sequence[QueueOverview], workers: Sequence[WorkerInfo], limits: Thresholds
) -> Iterator[Finding]:
    """Judge queues: whose ready jobs no worker serves, and whose wait is long."""
    served = {name for worker in workers if worker.alive for name in worker.queues}
    found = [finding for queue in queues for finding in _queue(queue, served, limits)]
    found.sort(key=lambda finding: finding.level != "error")
    yield from found[:QUEUES] or [
        Finding("queues", "ok", f"{_many(len(queues), 'queue')}, none waits without a worker")
    ]
    if len(found) > QUEUES:
        level = worst(found[QUEUES:])
        message = f"{len(found) - QUEUES:,} more findings about queues"
        yield Finding("queues", level, message, "The overview of pgjq web and the view pgjq.backlog list all queues.")


def _queue(queue: QueueOverview, served: Collection[str], limits: Thresholds) -> Iterator[Finding]:
    if not queue.ready:
        return
    waiting = f"{queue.ready_text} {'job waits' if queue.ready == 1 else 'jobs wait'}"
    if queue.paused:
        message = f"queue {queue.name} is paused, and {waiting}"
        yield Finding("queues", "warning", message, f"When they may run: pgjq queues resume {queue.name}")
    elif queue.name not in served and queue.takes_dead_letters:
        message = f"{waiting} as dead letters in queue {queue.name}"
        advice = f"Mend what made them fail, then: pgjq queues redrive {queue.name}"
        yield Finding("queues", "warning", message, advice)
    elif queue.name not in served:
        message = f"no worker serves queue {queue.name}, and {waiting}"
        advice = "Start one with the module that has its handler: pgjq worker MODULE:QUEUE"
        yield Finding("queues", "error", message, advice)
    elif queue.oldest is not None and queue.oldest > limits.ready_age:
        message = f"the oldest job of queue {queue.name} has been ready for {_seconds(queue.oldest)}, {waiting}"
        advice = "Add workers or raise --concurrency; pgjq top shows what keeps the workers busy."
        yield Finding("queues", "warning", message, advice)


def judge_tasks(tasks: Sequence[PutBackTask]) -> Iterator[Finding]:
    """Judge tasks whose jobs were put back because no worker knows the task."""
    for task in tasks:
        yield Finding(
            "tasks",
            "warning",
            f"workers put {_many(task.jobs, 'job')} of task {task.task} in queue {task.queue} back, one of them "
            f"{_many(task.times, 'time')}, such as {task.example}",
            "Deploy workers whose code has this task, or keep its old name with aliases=. If the task snoozes by "
            "itself, this is as intended.",
        )
    if not tasks:
        yield Finding("tasks", "ok", "no job waits for a worker that knows its task")


def judge_stalled(stalled: Sequence[Stalled], limits: Thresholds) -> Iterator[Finding]:
    """Judge running jobs past their deadline: reapers take them back within seconds."""
    late = [job for job in stalled if job.overdue > limits.overdue]
    if not late:
        yield Finding("stalled", "ok", "no running job is overdue")
        return
    named = [f"{job.id} of {job.queue} for {_seconds(job.overdue)}" for job in late]
    yield Finding(
        "stalled",
        "error",
        f"{_many(len(late), 'running job')} passed the deadline and no reaper took them back: {_some(named)}",
        "Start a worker, or pgjq reaper: each of them takes stalled jobs of all queues back.",
    )


def judge_blocked(blocked: Sequence[BlockedKey]) -> Iterator[Finding]:
    """Judge keys in strict order: a failed job blocks those behind it until a person decides."""
    for key in blocked[:NAMED]:
        waiting = f"; {_many(key.waiting, 'job')} wait behind it" if key.waiting else ""
        yield Finding(
            "blocked",
            "error" if key.state == "failed" else "warning",
            f"key {key.key} of queue {key.queue} is blocked by job {key.id}, which is {key.state}{waiting}",
            f"See its error with pgjq status {key.queue} {key.id}, then pgjq retry or pgjq delete it.",
        )
    if len(blocked) > NAMED:
        message = f"{len(blocked) - NAMED} more keys are blocked"
        yield Finding("blocked", "error", message, "The view pgjq.blocked_keys lists them.")
    if not blocked:
        yield Finding("blocked", "ok", "no key is blocked")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _seconds(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
