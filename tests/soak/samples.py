"""What a soak measures, and what counts as flat.

A curve is flat if its median in the last quarter of the run is not far above the one in the second quarter: the first
one is for warming up.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

SERVER = """
    select
        (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()),
        (select sum(pg_total_relation_size(c.oid)) from pg_class as c
         where c.relnamespace = 'pgjq'::regnamespace and c.relkind in ('r', 'S')) / 1048576.0,
        pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') / 1024.0,
        coalesce((select sum(jobs) from tally), 0)
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a curve may rise: by a factor, and by an amount on top."""

    factor: float
    amount: float

    def is_kept(self, early: float, late: float) -> bool:
        return late <= early * self.factor + self.amount


LIMITS: dict[str, Limit] = {
    "memory of a worker (MB)": Limit(1.1, 10.0),
    "memory of an async worker (MB)": Limit(1.1, 10.0),
    "memory of the producer (MB)": Limit(1.1, 10.0),
    "memory of the caller (MB)": Limit(1.1, 10.0),
    "threads of a worker": Limit(1.0, 4.0),
    "sockets of a worker": Limit(1.0, 4.0),
    "connections": Limit(1.0, 10.0),
    "tables and indexes (MB)": Limit(1.5, 4.0),
    "WAL per job (KB)": Limit(1.5, 1.0),
}
PROCESSES = {
    "a worker": "worker-1",
    "an async worker": "async_worker-1",
    "the producer": "producer-1",
    "the caller": "caller-1",
}


class Samples:
    """Curves by name, each with one value for each sample."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.curves: dict[str, list[float]] = {name: [] for name in LIMITS}
        self.jobs = 0
        self._wal = 0.0

    def take(self, seconds: float, connection: psycopg.Connection[tuple[float, ...]], pids: Mapping[str, int]) -> None:
        """Look at every process and at the server."""
        row = connection.execute(SERVER).fetchone()
        assert row is not None
        sessions, tables, wal, jobs = (float(value) for value in row)
        found = {f"memory of {who} (MB)": memory(pids[name]) for who, name in PROCESSES.items()}
        found["threads of a worker"] = float(len(list(Path(f"/proc/{pids['worker-1']}/task").iterdir())))
        found["sockets of a worker"] = float(sockets(pids["worker-1"]))
        found |= {"connections": sessions, "tables and indexes (MB)": tables}
        found["WAL per job (KB)"] = (wal - self._wal) / max(1.0, jobs - self.jobs)
        if self._wal:  # The first sample has nothing to count from.
            self.seconds.append(seconds)
            for name, value in found.items():
                self.curves[name].append(value)
        self._wal, self.jobs = wal, int(jobs)

    def rising(self) -> list[str]:
        """Return what is said about each curve that is not flat."""
        found: list[str] = []
        for name, limit in LIMITS.items():
            early, late = quarters(self.curves[name])
            if not limit.is_kept(early, late):
                found.append(f"{name} rose from {early:.1f} to {late:.1f}")
        return found


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the second and of the last quarter."""
    size = max(1, len(values) // 4)
    return median(values[size : 2 * size] or values), median(values[-size:])


def memory(pid: int) -> float:
    """Return the resident megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count
