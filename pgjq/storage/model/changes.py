"""What an operation changed: subscribers and the journal read these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.job import LIVE, Event
from pgjq.schedules.schedule import tick_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pgjq.job import EventName
    from pgjq.storage.model.queue_record import QueueRecord
    from pgjq.storage.model.record import Record
    from pgjq.storage.model.schedule_records import ScheduleChange

NOTHING: Mapping[str, Any] = {}


class Change(NamedTuple):
    """A change of a job: `fields` are its new values, None if it was deleted.

    If the job was `added`, all its values are new.
    """

    record: Record
    fields: Mapping[str, Any] | None
    event: EventName | None = None
    facts: Mapping[str, Any] | None = None
    added: bool = False


class QueueChange(NamedTuple):
    """A change of a queue: `known` is its new record, None if it was deleted."""

    name: str
    known: QueueRecord | None
    event: EventName | None = None
    facts: Mapping[str, Any] | None = None


def events_of(
    changes: Sequence[Change],
    queue_changes: Sequence[QueueChange],
    schedule_changes: Sequence[ScheduleChange],
    now: datetime,
) -> Iterator[Event]:
    """Iterate over the events of an operation, in their order."""
    for record, _, name, facts, _ in changes:
        if name is not None:
            fixed: dict[str, Any] = {"attempts": record.attempts, "task": record.task}
            yield Event(name, record.queue, record.id, now, **fixed, **(facts or NOTHING))
    for queue, _, name, facts in queue_changes:
        if name is not None:
            given: dict[str, Any] = {"id": "", **(facts or NOTHING)}
            yield Event(name, queue, at=now, **given)
    for name, known, ticks in schedule_changes:
        queue = "" if known is None else known.schedule.queue
        for tick in ticks:
            job_id = tick.job_id or f"{name}@{tick_name(tick.tick)}"
            yield Event("tick", queue, job_id, now, reason=tick.outcome)


def ended_by(changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Iterate over the queues and ids of the jobs that an operation ended or deleted."""
    for record, values, *_ in changes:
        if values is None or ("state" in values and record.state not in LIVE):
            yield record.queue, record.id
