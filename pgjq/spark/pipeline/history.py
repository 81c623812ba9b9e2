"""A made-up history to look at: a million jobs of three months, with things going wrong on the way.

The same seed makes the same history. It is written in one statement for each week, which also makes it many
transactions, as a real one is. `sql/queries/demo_history.sql` says what the jobs are and what goes wrong.
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
# How the queues are defined, which is not always wise: reports are given up too early, mail too late.
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
    """What to make up: about so many jobs, on so many days, the last of which ends at a point in time."""

    ends: datetime
    jobs: int = 1_000_000
    days: int = 91
    seed: int = 1
    incidents: bool = True

    @property
    def begins(self) -> datetime:
        """When the first day begins."""
        return self.ends - timedelta(days=self.days)


def make_history(conninfo: str, history: History, told: Callable[[int, int], object] | None = None) -> int:
    """Write a history into a migrated database; say how many jobs it has. `told` hears of days done, and of all."""
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
