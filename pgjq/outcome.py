"""What a run ended in. One method of the storage settles a batch of these, each under the lease it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgjq.job import JobError


@dataclass(frozen=True, slots=True)
class Completed:
    """Done; `result` is what the result's serde made of the handler's answer."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """Failed, and will run again after `delay` seconds."""

    error: JobError
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed for good."""

    error: JobError


@dataclass(frozen=True, slots=True)
class Released:
    """Given back unfinished by a worker that stops; the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Put off by its handler for `delay` seconds; the attempt does not count."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Withdrawn while it ran."""


Outcome = Completed | Failing | Failed | Released | Snoozed | Cancelled
