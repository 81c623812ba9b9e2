"""Failures grouped by error: type and place, or type and shape of the message."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pgjq.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from pgjq.storage.inspection import FoundJob

NAMED: Final = 3
_VARYING: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\d+|'[^']*'|\"[^\"]*\"")


@dataclass(slots=True)
class Group:
    """Jobs that failed alike."""

    type: str
    place: str | None
    message: str
    text: str
    """What the error filter of the jobs page finds them by."""
    count: int = 0
    failing: int = 0
    queues: Counter[str] = field(default_factory=Counter[str])
    tasks: Counter[str] = field(default_factory=Counter[str])
    last: FoundJob | None = None
    last_at: datetime | None = None

    @property
    def summary(self) -> str:
        """How many jobs of which queues failed, with what and where."""
        jobs = "1 job" if self.count == 1 else f"{self.count:,} jobs"
        queues = ", ".join(sorted(self.queues)[:NAMED])
        more = f" and {len(self.queues) - NAMED} more queues" if len(self.queues) > NAMED else ""
        place = f" at {self.place}" if self.place else ""
        again = f"; {self.failing:,} will be tried again" if self.failing else ""
        return f"{jobs} of {queues}{more} failed with {self.type}{place}: {self.message[:200]}{again}"

    @property
    def remedy(self) -> str:
        """What ends this kind of failure, in one sentence."""
        if self.type == "Stalled" and "went silent" in self.message:
            return "Read the log of its worker and of the machine: it was killed (out of memory?) or lost the storage."
        if self.type == "Stalled":
            return "Make the handler faster, or raise expire_in_seconds."
        return "Mend the handler and deploy it."


def groups_of(jobs: Iterable[FoundJob]) -> list[Group]:
    """Group failed and failing jobs, the largest group first."""
    groups: dict[tuple[str, str], Group] = {}
    for job in jobs:
        error = job.status.error
        if error is not None:
            shape = job.place or _VARYING.sub("…", error.message)[:120]
            group = groups.setdefault(
                (error.type, shape), Group(error.type, job.place, error.message, job.place or error.type)
            )
            _add(group, job)
    return sorted(groups.values(), key=lambda group: -group.count)


def _add(group: Group, job: FoundJob) -> None:
    status = job.status
    group.count += 1
    group.failing += status.state == "failing"
    group.queues[status.queue] += 1
    if status.task:
        group.tasks[status.task] += 1
    at = status.finished_at or status.started_at
    if at is not None and (group.last_at is None or at > group.last_at):
        group.last, group.last_at = job, at
        group.message = status.error.message if status.error else ""


def judge_failures(jobs: Iterable[FoundJob]) -> Iterator[Finding]:
    """Judge jobs that failed lately or wait for another attempt, grouped by error."""
    groups = groups_of(jobs)
    for group in groups[:NAMED]:
        if group.last is None:
            continue
        queue, job_id = group.last.status.queue, group.last.status.id
        advice = f"pgjq status {queue} {job_id} shows the {'runs' if group.type == 'Stalled' else 'traceback'}."
        advice += f" {group.remedy}"
        if group.count > group.failing:
            advice += f" Then, for those that failed for good: pgjq jobs retry --queue {queue} --state failed"
        yield Finding("failures", "warning", group.summary, advice)
    if len(groups) > NAMED:
        rest = sum(group.count for group in groups[NAMED:])
        yield Finding("failures", "warning", f"{rest:,} jobs failed with {len(groups) - NAMED} other errors",
                      "The page Failures of pgjq web, and the key f of pgjq top, group them.")  # fmt: skip
    if not groups:
        yield Finding("failures", "ok", "no job failed lately")
