"""Failures grouped by error: type and place, or type and the shape of the message where no place is known."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from pgjq.storage.inspection import FoundJob

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
    if task := getattr(status, "task", None):
        group.tasks[task] += 1
    at = status.finished_at or status.started_at
    if at is not None and (group.last_at is None or at > group.last_at):
        group.last, group.last_at = job, at
        group.message = status.error.message if status.error else ""
