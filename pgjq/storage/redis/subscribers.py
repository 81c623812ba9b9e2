"""The subscribers of a channel: which mailboxes get the messages about which subject.

The channel's listener passes messages on. When it may have missed some, or cannot read one, it puts `RESYNC` into every
mailbox: every subscriber then reads the storage.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from pgjq.storage.malformed_notifications import MalformedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.storage.mailbox import Mailbox

    Subjects = Callable[[bytes], Iterable["Subject"]]

LINGER_SECONDS: Final = 10.0
RESYNC: Final = None

Notice = bytes | None
Subject = bytes | tuple[str, str]


class Subscribers:
    """The mailboxes of one channel; `subjects` returns the subjects of a message. Thread-safe.

    With `stays` the channel is needed as long as the storage is open, else until it has had no mailbox for a while.
    """

    def __init__(self, channel: str, subjects: Subjects, *, stays: bool) -> None:
        self._channel = channel
        self._malformed = MalformedLog()
        self._subjects = subjects
        self._stays = stays
        self._lock = threading.Lock()
        self._wants: dict[Subject, list[Mailbox[Notice]]] = {}
        self._left_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._wants)

    def join(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Put messages about a subject into a mailbox from now on, unless the mailbox is closed."""
        with self._lock:
            if not box.closed:
                self._wants.setdefault(subject, []).append(box)

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Put no more messages about a subject into a mailbox."""
        with self._lock:
            boxes = self._wants.get(subject, [])
            if box in boxes:
                boxes.remove(box)
            if not boxes:
                self._wants.pop(subject, None)
            self._left_at = time.monotonic()

    def is_gone(self) -> bool:
        """Return whether the listener may end."""
        return not (self._stays or self._wants or time.monotonic() < self._left_at + LINGER_SECONDS)

    def deliver(self, message: bytes) -> None:
        """Put a message into the mailboxes of its subjects."""
        try:
            for subject in self._subjects(message):
                for box in tuple(self._wants.get(subject, ())):
                    box.put(message)
        except Exception as error:  # noqa: BLE001  (a subscriber's mailbox reads the message, too)
            self._malformed.note(self._channel, error)
            self.resync()

    def resync(self) -> None:
        """Have every subscriber read the storage."""
        for box in self._boxes():
            box.put(RESYNC)

    def dismiss(self) -> None:
        """Close every mailbox."""
        for box in self._boxes():
            box.close()

    def _boxes(self) -> list[Mailbox[Notice]]:
        with self._lock:
            return [box for boxes in self._wants.values() for box in boxes]
