"""Read what a screen of `pgjq top` shows: bounded reads, with the inspection's time limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pgjq.cli.top.model import Facts
from pgjq.doctor import Thresholds, examine, queue_checks, recent_failures
from pgjq.doctor.failure_groups import judge_failures
from pgjq.errors import PgjqError
from pgjq.storage.inspection import JobSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.cli.top.model import Screen
    from pgjq.doctor import Finding
    from pgjq.job import WorkerInfo
    from pgjq.storage.base import Storage
    from pgjq.storage.inspection import FoundJob, Inspection, QueueOverview

QUEUES: Final = 200
WORKERS: Final = 200
JOBS: Final = 100
TROUBLES: Final = 50


async def read(storage: Storage, inspection: Inspection, screen: Screen) -> Facts:
    """Read what the view shows; a storage that does not answer is part of it."""
    try:
        return await _read(storage, inspection, screen)
    except PgjqError as error:
        return replace(screen.facts, problem=str(error), is_read=True)


async def _read(storage: Storage, inspection: Inspection, screen: Screen) -> Facts:
    if screen.view == "doctor":
        found = sorted(await examine(storage), key=lambda f: ("error", "warning", "ok").index(f.level))
        return replace(screen.facts, totals=await inspection.totals(), findings=found, problem=None, is_read=True)
    queues = await inspection.queues(limit=QUEUES)
    workers = await inspection.workers(WORKERS)
    failures = await recent_failures(inspection, Thresholds().failure_age)
    findings = await _findings(inspection, queues, workers, failures)
    jobs = failures[:JOBS] if screen.view == "failures" else await _jobs(inspection, screen)
    return Facts(await inspection.totals(), queues, workers, findings, jobs, is_read=True)


async def _jobs(inspection: Inspection, screen: Screen) -> Sequence[FoundJob]:
    if screen.view != "jobs":
        return ()
    return (await inspection.search(JobSearch(queue=screen.queue), None, JOBS)).jobs


async def _findings(
    inspection: Inspection, queues: Sequence[QueueOverview], workers: Sequence[WorkerInfo], failures: Sequence[FoundJob]
) -> list[Finding]:
    limits = Thresholds()
    found = [
        *queue_checks.judge_queues(queues, workers, limits),
        *queue_checks.judge_stalled(await inspection.stalled(TROUBLES), limits),
        *queue_checks.judge_blocked(await inspection.blocked(None, TROUBLES)),
        *judge_failures(failures),
        *queue_checks.judge_workers(workers),
    ]
    return _first_of_each([finding for finding in found if finding.level != "ok"])


def _first_of_each(findings: Sequence[Finding]) -> list[Finding]:
    """Order findings so that a check with many does not hide those of others; the errors first."""
    before: Counter[str] = Counter()
    ranked: list[tuple[int, bool, Finding]] = []
    for finding in sorted(findings, key=lambda found: found.level != "error"):
        ranked.append((before[finding.check], finding.level != "error", finding))
        before[finding.check] += 1
    return [finding for _, _, finding in sorted(ranked, key=lambda found: found[:2])]
