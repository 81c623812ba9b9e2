"""Worker records: which workers there are, for people. Nothing that holds jobs depends on them.

A worker registers when it starts, is seen at every interval of its own, and removes its registration when it stops. A
process that is killed leaves its registration behind: silent for three of its intervals the worker is not alive, and a
day later the record is old, is not listed any more, and `prune` removes it. The storage's clock decides.

One worker id may have several registrations: two queues of one process, or a worker that was killed and started anew.
They are listed as one worker.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from pgjq.job import WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# sql/views/0001_monitoring.sql and sql/functions/0001_workers.sql have these two as well.
SILENT_INTERVALS: Final = 3
KEPT: Final = timedelta(days=1)


class Registration(NamedTuple):
    """A worker that serves some queues from its start until it stops, and is seen again within `heartbeat` seconds."""

    id: str
    worker: str
    queues: tuple[str, ...]
    heartbeat: float


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A registration, and when it was first and last seen."""

    registration: Registration
    started_at: datetime
    last_seen: datetime

    @property
    def alive_until(self) -> datetime:
        """When the worker has been silent for too long."""
        return self.last_seen + timedelta(seconds=SILENT_INTERVALS * self.registration.heartbeat)

    def is_old(self, now: datetime) -> bool:
        """Say whether the record can be removed."""
        return self.alive_until + KEPT <= now


def list_workers(records: Iterable[WorkerRecord], running: Mapping[str, int], now: datetime) -> list[WorkerInfo]:
    """Describe each worker by its registrations; workers that are alive come first, then the oldest."""
    by_worker: defaultdict[str, list[WorkerRecord]] = defaultdict(list)
    for record in records:
        if not record.is_old(now):
            by_worker[record.registration.worker].append(record)
    infos = [_describe(worker, records, running.get(worker, 0), now) for worker, records in by_worker.items()]
    return sorted(infos, key=lambda info: (not info.alive, info.started_at, info.id))


def _describe(worker: str, records: Sequence[WorkerRecord], running: int, now: datetime) -> WorkerInfo:
    """Describe a worker by those of its registrations that are alive, else by the last that was."""
    alive = [record for record in records if record.alive_until > now]
    shown = sorted(alive or [max(records, key=lambda r: r.last_seen)], key=lambda r: r.started_at)
    queues = tuple(dict.fromkeys(chain.from_iterable(record.registration.queues for record in shown)))
    return WorkerInfo(worker, queues, shown[0].started_at, max(r.last_seen for r in shown), running, alive=bool(alive))
