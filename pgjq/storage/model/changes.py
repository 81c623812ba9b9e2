"""What an operation changed: subscribers and the journal read these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgjq.job import EventName
    from pgjq.storage.model.queue_record import QueueRecord
    from pgjq.storage.model.record import Record


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
