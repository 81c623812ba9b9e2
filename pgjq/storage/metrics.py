"""What an exporter of metrics reads of a storage at once: values and their protocol.

A storage may have a method `metrics()` that returns a `MetricsReader`; others are read through their operations
(`pgjq.generic_metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class QueueReading:
    """A queue's jobs by state, the age of its oldest ready job in seconds, and its live workers."""

    queue: str
    queued: int
    processing: int
    failing: int
    completed: int
    failed: int
    cancelled: int
    oldest: float
    workers: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A storage at one moment.

    `finished` counts endings by queue, task (empty: none) and outcome; `stalled` counts stalls by queue. `leaders` has
    the roles, and whether a process leads in each. `oldest_snapshot` and `schedule_late` are seconds. None: the storage
    does not tell.
    """

    queues: Sequence[QueueReading]
    finished: Mapping[tuple[str, str, str], int]
    stalled: Mapping[str, int] | None = None
    leaders: Mapping[str, bool] = field(default_factory=dict[str, bool])
    oldest_snapshot: float | None = None
    schedule_late: float | None = None


class MetricsReader(Protocol):
    """Reads of an exporter, in sync mode."""

    async def read(self) -> Reading:
        """Read everything, by statements that stay cheap with millions of jobs."""
        ...

    async def scale(self, queue: str, target: float) -> int:
        """Return the slots a queue needs to start what is ready within a number of seconds."""
        ...
