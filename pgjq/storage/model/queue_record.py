"""The record of a queue in a model; a queue may be used without a definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgjq.definition import Definition

if TYPE_CHECKING:
    from datetime import datetime

    from pgjq.job import QueueStats


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue's definition, its last statistics, and whether a size warning was sent."""

    created_at: datetime
    definition: Definition = field(default_factory=Definition)
    defined: bool = False
    paused: bool = False
    warned: bool = False
    stats: QueueStats | None = None
