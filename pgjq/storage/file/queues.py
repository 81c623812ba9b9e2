"""Queue records in the journal, as readable JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.definition import Definition
from pgjq.job import QueueStats
from pgjq.storage.model.queue_record import QueueRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgjq.storage.model.changes import QueueChange


class QueueEntry(NamedTuple):
    """One change of a queue, as read."""

    name: str
    known: QueueRecord | None
    event: Any = None
    facts: Any = None


def write_change(change: QueueChange) -> list[Any]:
    """Write a queue's new record, or null if it was deleted."""
    values = None if change.known is None else write_known(change.known)
    if change.event is None:
        return [change.name, values]
    return [change.name, values, change.event, change.facts]


def read_change(entry: list[Any]) -> QueueEntry:
    """Read what `write_change` wrote."""
    name, values, *rest = entry
    return QueueEntry(name, None if values is None else _read_known(values), *rest)


def write_known(known: QueueRecord) -> dict[str, Any]:
    """Write a queue's record."""
    return {
        "created_at": known.created_at.isoformat(),
        "definition": asdict(known.definition),
        "defined": known.defined,
        "paused": known.paused,
        "warned": known.warned,
        "stats": None if known.stats is None else asdict(known.stats),
    }


def _read_known(values: Mapping[str, Any]) -> QueueRecord:
    stats = values["stats"]
    return QueueRecord(
        created_at=datetime.fromisoformat(values["created_at"]),
        definition=Definition(**values["definition"]),
        defined=values["defined"],
        paused=values["paused"],
        warned=values["warned"],
        stats=None if stats is None else QueueStats(**stats),
    )
