"""Who wants to hear of which subject of a channel, and the mailboxes that messages go to.

A listener hears a channel and tells its audience. When it may have missed something it puts `RESYNC` into every
mailbox: everyone then looks for themselves. So they do after a message that nobody can read.
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
    """Those who want to hear; `subjects` reads from a message what it is about. For any thread.

    An audience that `stays` is listened for as long as there is a storage; another is gone when nobody has wanted to
    hear anything for a while.
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
        """Have messages about a subject put into a mailbox from now on, unless its owner has gone."""
        with self._lock:
            if not box.closed:
                self._wants.setdefault(subject, []).append(box)

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Put no more into a mailbox."""
        with self._lock:
            boxes = self._wants.get(subject, [])
            if box in boxes:
                boxes.remove(box)
            if not boxes:
                self._wants.pop(subject, None)
            self._left_at = time.monotonic()

    def is_gone(self) -> bool:
        """Tell whether there is nobody left to listen for."""
        return not (self._stays or self._wants or time.monotonic() < self._left_at + LINGER_SECONDS)

    def tell(self, message: bytes) -> None:
        """Put a message into the mailboxes of those whom it concerns."""
        try:
            for subject in self._subjects(message):
                for box in tuple(self._wants.get(subject, ())):
                    box.put(message)
        except Exception as error:  # noqa: BLE001  (a subscriber's mailbox reads the message, too)
            self._malformed.note(self._channel, error)
            self.resync()

    def resync(self) -> None:
        """Have everyone look for themselves."""
        for box in self._everyone():
            box.put(RESYNC)

    def dismiss(self) -> None:
        """Tell everyone that nothing more will come."""
        for box in self._everyone():
            box.close()

    def _everyone(self) -> list[Mailbox[Notice]]:
        with self._lock:
            return [box for boxes in self._wants.values() for box in boxes]
