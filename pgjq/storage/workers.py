"""Worker records: which workers there are, for display. No job depends on them.

A worker registers when it starts, is seen at every heartbeat interval, and removes its registration when it stops. A
process that is killed leaves its registration behind: after three silent intervals the worker is not alive, and a day
later the record is old, is not listed any more, and `prune` removes it. The storage's clock decides.

One worker id may have several registrations: two queues of one process, or a worker that was killed and restarted.
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

# Also in sql/views/0001_workers.sql and sql/functions/0001_workers.sql.
SILENT_INTERVALS: Final = 3
KEPT: Final = timedelta(days=1)


class Registration(NamedTuple):
    """A worker's registration for some queues; it is seen again within `heartbeat` seconds."""

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
        """When the worker counts as dead unless it is seen before."""
        return self.last_seen + timedelta(seconds=SILENT_INTERVALS * self.registration.heartbeat)

    def is_old(self, now: datetime) -> bool:
        """Return whether the record can be removed."""
        return self.alive_until + KEPT <= now


def list_workers(records: Iterable[WorkerRecord], running: Mapping[str, int], now: datetime) -> list[WorkerInfo]:
    """Describe each worker by its registrations; live workers first, then by start."""
    by_worker: defaultdict[str, list[WorkerRecord]] = defaultdict(list)
    for record in records:
        if not record.is_old(now):
            by_worker[record.registration.worker].append(record)
    infos = [_describe(worker, records, running.get(worker, 0), now) for worker, records in by_worker.items()]
    return sorted(infos, key=lambda info: (not info.alive, info.started_at, info.id))


def _describe(worker: str, records: Sequence[WorkerRecord], running: int, now: datetime) -> WorkerInfo:
    """Describe a worker by its live registrations, else by the one seen last."""
    alive = [record for record in records if record.alive_until > now]
    shown = sorted(alive or [max(records, key=lambda r: r.last_seen)], key=lambda r: r.started_at)
    queues = tuple(dict.fromkeys(chain.from_iterable(record.registration.queues for record in shown)))
    return WorkerInfo(worker, queues, shown[0].started_at, max(r.last_seen for r in shown), running, alive=bool(alive))
