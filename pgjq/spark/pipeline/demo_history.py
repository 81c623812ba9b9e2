"""A made-up history for the demo: a million jobs in three months, with incidents.

The same seed makes the same history. One statement writes each week, so that there are many transactions, as in a real
one. `sql/queries/demo_history.sql` defines the jobs and the incidents.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pgjq.client import Client
from pgjq.storage.postgres.oneshot import oneshot_connection
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from collections.abc import Callable

WEEK: Final = 7
# The definitions of the queues, partly unwise: reports expire too early, mail too late.
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "mail": {"expire_in_seconds": 7200, "retry_backoff": True},
    "media": {"heartbeat_seconds": 30},
    "billing": {"retry_delay": 5},
    "search": {},
    "reports": {"expire_in_seconds": 300},
}
WORKERS: Final = {"mail": 3, "media": 3, "billing": 2, "search": 2, "reports": 2}


@dataclass(frozen=True, slots=True)
class History:
    """The history to make: about this many jobs, on this many days until a point in time."""

    ends: datetime
    jobs: int = 1_000_000
    days: int = 91
    seed: int = 1
    incidents: bool = True

    @property
    def begins(self) -> datetime:
        """The start of the first day."""
        return self.ends - timedelta(days=self.days)


def make_history(conninfo: str, history: History, told: Callable[[int, int], object] | None = None) -> int:
    """Write a history and return its number of jobs. `told` gets the days done and all days."""
    _define(conninfo)
    names = [f"{queue}-{n}" for queue, count in WORKERS.items() for n in range(1, count + 1)]
    made = 0
    with oneshot_connection(conninfo) as here:
        here.fetch("demo_workers", {"names": names, "ends": history.ends})
        for day in range(0, history.days, WEEK):
            made += here.fetch("demo_history", _week(history, day))[0][0]
            if told:
                told(min(day + WEEK, history.days), history.days)
    return made


def _define(conninfo: str) -> None:
    with Client(PostgresStorage(conninfo)) as client:
        for queue, options in QUEUES.items():
            client.create_queue(queue, **options)


def _week(history: History, day: int) -> dict[str, Any]:
    return {
        "begins": history.begins,
        "days": history.days,
        "first_day": day,
        "last_day": day + WEEK,
        "jobs": history.jobs,
        "seed": history.seed,
        "incidents": history.incidents,
    }
