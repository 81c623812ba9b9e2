"""Schedules in the journal, as JSON: `[name, record, ticks]`; null if it was deleted."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgjq.schedules.schedule import Schedule, ScheduleTick
from pgjq.storage.model.schedule_records import ScheduleChange, ScheduleRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pgjq.storage.model.schedule_records import ScheduleTable

MOMENTS = ("created_at", "changed_at", "start_at", "end_at", "next_run_at", "due_at", "last_run_at")


def write_change(change: ScheduleChange) -> list[Any]:
    """Write the change of a schedule."""
    record = None if change.record is None else _write_record(change.record)
    return [change.name, record, [_write_tick(tick) for tick in change.ticks]]


def write_all(table: ScheduleTable) -> Iterator[list[Any]]:
    """Write every schedule as it is."""
    for name, record in table.records.items():
        yield write_change(ScheduleChange(name, record, list(table.ticks.get(name, ()))))


def read_change(entry: list[Any]) -> ScheduleChange:
    """Read what `write_change` wrote."""
    name, record, ticks = entry
    return ScheduleChange(name, None if record is None else _read_record(record), [_read_tick(t) for t in ticks])


def _write_record(record: ScheduleRecord) -> dict[str, Any]:
    values = {name: value for name, value in asdict(record.schedule).items() if value is not None}
    values |= {name: values[name].isoformat() for name in MOMENTS if name in values}
    values["payload"] = b64encode(record.schedule.payload).decode()
    return {"schedule": values, "last_seq": record.last_seq, "jobs": record.jobs}


def _read_record(written: Mapping[str, Any]) -> ScheduleRecord:
    values = dict(written["schedule"])
    values |= {name: datetime.fromisoformat(values[name]) for name in MOMENTS if name in values}
    values["payload"] = b64decode(values["payload"])
    return ScheduleRecord(Schedule(**values), written["last_seq"], tuple(written["jobs"]))


def _write_tick(tick: ScheduleTick) -> list[Any]:
    return [tick.tick.isoformat(), tick.at.isoformat(), *tick[2:]]


def _read_tick(written: list[Any]) -> ScheduleTick:
    tick, at, *rest = written
    return ScheduleTick(datetime.fromisoformat(tick), datetime.fromisoformat(at), *rest)
