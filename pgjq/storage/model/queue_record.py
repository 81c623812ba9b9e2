"""A queue as a model knows it: defined, or only used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgjq.definition import Definition

if TYPE_CHECKING:
    from datetime import datetime

    from pgjq.job import QueueStats


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Its definition, its statistics as they were counted last, and whether somebody was warned of its size."""

    created_at: datetime
    definition: Definition = field(default_factory=Definition)
    defined: bool = False
    paused: bool = False
    warned: bool = False
    stats: QueueStats | None = None
