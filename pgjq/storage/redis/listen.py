"""One listening connection for each channel that somebody in this process wants to hear.

There are three channels: `wake` says which queue may have work for those who sleep, `answers` which of the jobs that
somebody waits for have ended, `events` tells of every job's life.
Rules of the protocol
* `want` returns when the server has confirmed the subscription: what is published from then on is heard. The wake
  channel stays subscribed for good, because `lua/peek.lua` notes who sleeps. The others are left when nobody has wanted
  them for a while, because writers of events look whether anybody listens; not at once, because whoever waits for one
  answer after the other would connect for each.
* A thread waits on the socket and hands messages to mailboxes. After a silence it asks the server for a sign of life,
  because a connection that is only listened to can be dead for hours.
* After a loss it connects and subscribes again, and puts `RESYNC` into every mailbox: what was published in between was
  not heard, so everyone looks for themselves. So they do after a message that nobody can read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ConnectionError as Lost

from pgjq.errors import StorageError
from pgjq.storage.redis.failures import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.storage.mailbox import Mailbox

    Subjects = Callable[[bytes], Iterable["Subject"]]

PROBE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 0.5
LINGER_SECONDS: Final = 10.0
RESYNC: Final = None

Notice = bytes | None
Subject = bytes | tuple[str, str]


class Listener:
    """A channel's connection, its thread, and who wants to hear of which subject.

    `subjects` reads from a message what it is about.
    """

    def __init__(self, client: Any, channel: str, subjects: Subjects, *, stays: bool) -> None:
        self._client = client
        self._channel = channel
        self._subjects = subjects
        self._stays = stays
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()  # for what is in memory, and never held while the server is asked
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._wants: dict[Subject, list[Mailbox[Notice]]] = {}
        self._left_at = 0.0
        self._pubsub: Any = None
        self._thread: threading.Thread | None = None

    def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Have messages put into a mailbox from now on; without a connection, wait for one."""
        if self._process != os.getpid():
            self._begin()  # In a forked child the connection and the thread are the parent's.
        with self._lock:
            self._check()
            if box.closed:
                return  # Whoever wanted this has gone in the meantime.
            self._wants.setdefault(subject, []).append(box)
        try:
            with self._starting:
                if self._thread is None:
                    self._start()
        except BaseException:
            self.leave(subject, box)
            raise

    def _check(self) -> None:
        if self._closing.is_set():
            message = "this storage has been closed"
            raise StorageError(message)

    def is_ready(self) -> bool:
        """Tell whether `want` would return at once."""
        return self._thread is not None and self._process == os.getpid()

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Stop putting messages into a mailbox. The thread stops listening when that was long ago, and the last one."""
        with self._lock:
            boxes = self._wants.get(subject, [])
            if box in boxes:
                boxes.remove(box)
            if not boxes:
                self._wants.pop(subject, None)
            self._left_at = time.monotonic()

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        with self._lock:
            boxes = [box for boxes in self._wants.values() for box in boxes]
            thread = self._thread
            self._closing.set()
            if self._pubsub is not None and self._pubsub.connection is not None and self._process == os.getpid():
                self._pubsub.connection.disconnect()  # Which wakes the thread that reads from it.
        if thread is not None and thread is not threading.current_thread() and self._process == os.getpid():
            thread.join(timeout=5)
        for box in boxes:
            box.close()

    def _start(self) -> None:
        """Connect in the caller's thread, so that what is wrong is the caller's to see; then listen in our own."""
        with translated():
            pubsub = self._subscribed()
        with self._lock:
            if self._closing.is_set():
                self._drop(pubsub)
            self._check()
            self._pubsub = pubsub
            self._thread = threading.Thread(target=self._run, name="pgjq listener", daemon=True)
            self._thread.start()

    def _subscribed(self) -> Any:
        """Connect and subscribe, and wait until the server says so."""
        pubsub = self._client.pubsub()
        try:
            pubsub.subscribe(self._channel)
            answer = pubsub.get_message(timeout=PROBE_SECONDS)
        except BaseException:
            pubsub.close()
            raise
        if answer is None:
            pubsub.close()
            raise Lost("no answer to a subscription")
        return pubsub

    def _run(self) -> None:
        closing, pubsub = self._closing, self._pubsub
        while not closing.is_set():
            try:
                pubsub = pubsub or self._reconnected()
                self._listen(pubsub)
                break
            except Exception:  # noqa: BLE001  (a listener that dies leaves sleepers behind; cut off, it may say anything)
                self._drop(pubsub)
                pubsub = None
                closing.wait(RECONNECT_SECONDS)
        self._drop(pubsub)

    def _reconnected(self) -> Any:
        pubsub = self._subscribed()
        with self._lock:
            self._pubsub = pubsub
        self._resync()
        return pubsub

    def _resync(self) -> None:
        with self._lock:
            boxes = [box for boxes in self._wants.values() for box in boxes]
        for box in boxes:
            box.put(RESYNC)

    def _listen(self, pubsub: Any) -> None:
        """Hand out messages until the storage is closed, or nobody has wanted any for a while."""
        asked = False
        while not (self._closing.is_set() or self._is_over()):
            message = pubsub.get_message(timeout=PROBE_SECONDS)
            if message is not None:
                asked = False
                if message["type"] == "message":
                    self._deliver(message["data"])
                elif message["type"] == "subscribe":
                    self._resync()  # Somebody's client connects again by itself, and does not tell.
            elif asked:
                raise Lost("the server has fallen silent")
            else:
                pubsub.ping()
                asked = True

    def _is_over(self) -> bool:
        if self._stays or self._wants or time.monotonic() < self._left_at + LINGER_SECONDS:
            return False
        with self._lock:
            if self._wants:
                return False
            self._thread = self._pubsub = None
            return True

    def _deliver(self, data: bytes) -> None:
        try:
            for subject in self._subjects(data):
                for box in tuple(self._wants.get(subject, ())):
                    box.put(data)
        except (ValueError, TypeError, LookupError):
            self._resync()

    def _drop(self, pubsub: Any) -> None:
        if pubsub is not None:
            with contextlib.suppress(Exception):
                pubsub.close()
