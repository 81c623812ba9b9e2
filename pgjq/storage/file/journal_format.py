"""The journal format: each line has all changes of one operation, as readable text.

A line is a checksum, a space, a JSON object and a newline. JSON contains no newline, so a reader continues after a
damaged line at the next one. The object has these members:

* `at`: the time of the operation.
* `jobs`: the changes of jobs, in order, as `[seq, fields, event, facts]`. `fields` are the new values: for an added
  job all that differ from the defaults, for a deleted one null; `last_attempt` adds to the job's history.
* `queues`, optional: the changes of queues, which follow those of jobs, as `[name, values, event, facts]`. `values` is
  the whole queue record, null for a deleted queue.
* `schedules`, optional: the changes of schedules (`pgjq.storage.file.schedules`).
* `records`, instead of `jobs`: jobs as they were when the journal was rewritten. A rewritten journal begins with its
  queues, its schedules and such records.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from pgjq.job import Attempt, JobError, JobSource
from pgjq.options import DEFAULT_SETTINGS, NO_OPTIONS, JobOptions, Settings
from pgjq.storage.file import queues, schedules
from pgjq.storage.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pgjq.storage.file.queues import QueueEntry
    from pgjq.storage.model.changes import Change
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.queue_record import QueueRecord
    from pgjq.storage.model.schedule_records import ScheduleChange, ScheduleTable

FORMAT = 1
KEPT = ("result_ttl", "max_attempts", "priority", "singleton_key")
DEFAULTS = [(f.name, f.default) for f in fields(Record) if f.name not in ("seq", "settings", "ready")]


class Entry(NamedTuple):
    """One change of a job, as read."""

    seq: int
    fields: dict[str, Any] | None
    event: Any = None
    facts: Any = None


def encode_line(content: Mapping[str, Any]) -> bytes:
    """Write a line."""
    body = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(body), body)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Read a line, without its newline; None if it is damaged."""
    checksum, _, body = line.partition(b" ")
    try:
        return json.loads(body) if int(checksum, 16) == crc32(body) else None
    except (ValueError, RecursionError):
        return None


def header(generation: int, last_seq: int) -> bytes:
    """Write the first line: format, number of the rewrite, last job number that was used."""
    return encode_line({"journal": FORMAT, "generation": generation, "last_seq": last_seq})


def write(jobs: Jobs) -> bytes:
    """Write the changes of the current operation."""
    content: dict[str, Any] = {"at": jobs.now.isoformat(), "jobs": [_entry(change) for change in jobs.changes]}
    if jobs.queue_changes:
        content["queues"] = [queues.write_change(change) for change in jobs.queue_changes]
    if jobs.schedule_changes:
        content["schedules"] = [schedules.write_change(change) for change in jobs.schedule_changes]
    return encode_line(content)


def write_records(at: datetime, records: Iterable[Record]) -> bytes:
    """Write jobs as they are."""
    return encode_line({"at": at.isoformat(), "records": [[record.seq, _whole(record)] for record in records]})


def write_queues(at: datetime, known: Mapping[str, QueueRecord]) -> bytes:
    """Write queues as they are, in a line without jobs."""
    content = [[name, queues.write_known(queue)] for name, queue in known.items()]
    return encode_line({"at": at.isoformat(), "records": [], "queues": content})


def write_schedules(at: datetime, table: ScheduleTable) -> bytes:
    """Write schedules as they are, in a line without jobs."""
    return encode_line({"at": at.isoformat(), "records": [], "schedules": list(schedules.write_all(table))})


def read(content: dict[str, Any]) -> tuple[datetime, list[Entry], list[QueueEntry], list[ScheduleChange]]:
    """Read the time and changes of a line, or the jobs, queues and schedules it records."""
    entries = [Entry(*entry) for entry in content.get("jobs", content.get("records", ()))]
    changes = [queues.read_change(entry) for entry in content.get("queues", ())]
    return (
        datetime.fromisoformat(content["at"]),
        [entry._replace(fields=_decode(entry.fields)) for entry in entries],
        changes,
        [schedules.read_change(entry) for entry in content.get("schedules", ())],
    )


def _entry(change: Change) -> list[Any]:
    record = change.record
    values = _whole(record) if change.added else None if change.fields is None else _encode(change.fields)
    if change.event is None:
        return [record.seq, values]
    return (
        [record.seq, values, change.event] if change.facts is None else [record.seq, values, change.event, change.facts]
    )


def _whole(record: Record) -> dict[str, Any]:
    values = {n: value for n, default in DEFAULTS if (value := getattr(record, n)) is not default and value != default}
    encoded = _encode(values)
    if settings := _encode_settings(record.settings):
        encoded["settings"] = settings
    return encoded


def _encode(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: encode(value) if value is not None and (encode := ENCODERS.get(name)) is not None else value
        for name, value in values.items()
    }


def _decode(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        name: decode(value) if value is not None and (decode := DECODERS.get(name)) is not None else value
        for name, value in values.items()
    }


def _encode_bytes(data: bytes) -> str | list[str]:
    """Write UTF-8 as text, as most payloads are; other bytes as base64, in a list of one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return [b64encode(data).decode()]


def _decode_bytes(written: str | list[str]) -> bytes:
    return written.encode() if isinstance(written, str) else b64decode(written[0])


@lru_cache(maxsize=1024)
def _encode_settings(settings: Settings) -> dict[str, Any]:
    """Write the settings that differ from the defaults and matter after the enqueue."""
    values = {n: value for n in KEPT if (value := getattr(settings, n)) != getattr(DEFAULT_SETTINGS, n)}
    if options := settings.options.set_values():
        values["options"] = options
    return values


def _decode_settings(written: dict[str, Any]) -> Settings:
    options = written.pop("options", None)
    return Settings(**written, options=JobOptions(**options) if options else NO_OPTIONS)


def _encode_error(error: JobError) -> list[str | None]:
    return [error.type, error.message, error.traceback]


def _decode_error(written: list[Any]) -> JobError:
    return JobError(*written)


def _encode_source(source: JobSource) -> list[Any]:
    return [source.queue, source.id, source.attempts, None if source.error is None else _encode_error(source.error)]


def _decode_source(written: list[Any]) -> JobSource:
    queue, job_id, attempts, error = written
    return JobSource(queue, job_id, attempts, None if error is None else _decode_error(error))


def _encode_attempt(attempt: Attempt) -> list[Any]:
    error = None if attempt.error is None else _encode_error(attempt.error)
    times = attempt.started_at.isoformat(), attempt.ended_at.isoformat()
    return [attempt.number, attempt.worker, *times, attempt.outcome, error]


def _decode_attempt(written: list[Any]) -> Attempt:
    number, worker, started_at, ended_at, outcome, error = written
    times = datetime.fromisoformat(started_at), datetime.fromisoformat(ended_at)
    return Attempt(number, worker, *times, outcome, None if error is None else _decode_error(error))


def _encode_history(history: tuple[Attempt, ...]) -> list[list[Any]]:
    return [_encode_attempt(attempt) for attempt in history]


def _decode_history(written: list[list[Any]]) -> tuple[Attempt, ...]:
    return tuple(_decode_attempt(attempt) for attempt in written)


MOMENTS = ("created_at", "run_at", "started_at", "locked_until", "expire_at", "finished_at", "slot")
BLOBS = ("payload", "checkpoint", "result")
ENCODERS: dict[str, Callable[[Any], Any]] = {
    "settings": _encode_settings,
    **dict.fromkeys(MOMENTS, datetime.isoformat),
    **dict.fromkeys(BLOBS, _encode_bytes),
    "error": _encode_error,
    "source": _encode_source,
    "last_attempt": _encode_attempt,
    "history": _encode_history,
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(MOMENTS, datetime.fromisoformat),
    **dict.fromkeys(BLOBS, _decode_bytes),
    "error": _decode_error,
    "source": _decode_source,
    "settings": _decode_settings,
    "stalled_on": tuple,
    "last_attempt": _decode_attempt,
    "history": _decode_history,
}
