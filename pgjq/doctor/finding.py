"""The values of `pgjq doctor`: findings and thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check. `advice` says what to do; it is empty if there is nothing to do."""

    check: str
    level: Level
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on something is worth a warning. Times are in seconds."""

    clock_skew: float = 1.0
    listen_timeout: float = 2.0
    silent_heartbeats: float = 3.0
    ready_age: float = 300.0
    overdue: float = 30.0
    failure_age: float = 3600.0
    snapshot_age: float = 600.0
    dead_rows: int = 100_000
    bloat: int = 1024**3
    connections: float = 0.8


def worst(findings: Iterable[Finding]) -> Level:
    """Return the most severe level of some findings."""
    levels = {finding.level for finding in findings}
    return "error" if "error" in levels else "warning" if "warning" in levels else "ok"
