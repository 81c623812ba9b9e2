"""Where notifications go: mailboxes by topic.

Callers and the thread of the listener share one `Mailboxes`. It takes its lock for each step and calls no mailbox
under it, so a slow subscriber holds up no other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from pgjq.storage.malformed_notifications import MalformedLog

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, KeysView

    from pgjq.storage.mailbox import Mailbox

RESYNC: Final = None
EVENTS: Final = "events"
WAKE: Final = "wake"
ANSWERS: Final = "results"
SCHEDULES: Final = "schedules"

Notice = str | None


class Topic(NamedTuple):
    """A channel and a subject within it: a queue's name, a job, or "" for the whole channel."""

    channel: str
    subject: str = ""
    job: str = ""

    @property
    def is_asked_for(self) -> bool:
        """Whether writers check for listeners before they notify."""
        return self.channel not in (ANSWERS, SCHEDULES)


class Mailboxes:
    """The mailboxes of a listener's subscribers."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock  # The listener's: it changes mailboxes and its own state in one step.
        self._by_topic: dict[Topic, list[Mailbox[Notice]]] = {}
        self._malformed = MalformedLog()

    def add(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Register a mailbox; the caller holds the lock."""
        self._by_topic.setdefault(topic, []).append(box)

    def remove(self, topic: Topic, box: Mailbox[Notice]) -> bool:
        """Remove a mailbox; return whether it was the last of its topic. The caller holds the lock."""
        boxes = self._by_topic.get(topic, [])
        if box in boxes:
            boxes.remove(box)
        return not boxes and self._by_topic.pop(topic, None) is not None

    @property
    def topics(self) -> KeysView[Topic]:
        """The topics that have mailboxes; the caller holds the lock."""
        return self._by_topic.keys()

    def need_thread(self, read_elsewhere: Collection[Mailbox[Notice]]) -> bool:
        """Return whether a subscriber relies on the listener's thread. The caller holds the lock.

        A loop that reads delivers to every mailbox, so changes of schedules need the thread only while no loop reads.
        """
        return any(
            box not in read_elsewhere
            for topic, boxes in self._by_topic.items()
            if topic.channel != SCHEDULES or not read_elsewhere
            for box in boxes
        )

    def need_notifications(self) -> bool:
        """Return whether a subscriber does not poll, and so must learn of a lost connection soon."""
        with self._lock:
            return any(topic.channel in (ANSWERS, EVENTS) for topic in self._by_topic)

    def all(self) -> list[Mailbox[Notice]]:
        """Return every mailbox; the caller holds the lock."""
        return [box for boxes in self._by_topic.values() for box in boxes]

    def deliver(self, channel: str, payload: str) -> None:
        """Put a notification into its mailboxes; any login can send one, so it may be invalid."""
        try:
            self._dispatch(channel.rpartition(".")[2], payload)
        except Exception as error:  # noqa: BLE001
            self._malformed.note(channel, error)

    def _dispatch(self, channel: str, payload: str) -> None:
        if channel == ANSWERS:
            for queue, job_id, state in json.loads(payload):
                if job_id is None:
                    self._put_for_queue(queue, state)
                else:
                    self._put(Topic(ANSWERS, queue, job_id), state)
        else:
            self._put(Topic(channel, payload if channel == WAKE else ""), payload)

    def _put(self, topic: Topic, notice: Notice) -> None:
        with self._lock:
            boxes = tuple(self._by_topic.get(topic, ()))
        for box in boxes:
            box.put(notice)

    def _put_for_queue(self, queue: str, notice: Notice) -> None:
        """Notify the waiters of every job of a deleted queue."""
        with self._lock:
            topics = [topic for topic in self._by_topic if topic.channel == ANSWERS and topic.subject == queue]
        for topic in topics:
            self._put(topic, notice)

    def put_everywhere(self, notice: Notice) -> None:
        """Put a notification into every mailbox."""
        with self._lock:
            boxes = self.all()
        for box in boxes:
            box.put(notice)
