"""One listening connection for each channel that somebody in this process wants to hear.

There are three channels: `wake` says which queue may have work for those who sleep, `answers` which of the jobs that
somebody waits for have ended, `events` tells of every job's life. Here a thread listens, for those who block and for
clients that are not ours; `loop_listen.py` has the listener of an event loop, by the same rules.

Rules of the protocol
* `want` returns when the server has confirmed the subscription: what is published from then on is heard. The wake
  channel stays subscribed for good, because `lua/peek.lua` notes who sleeps. The others are left when nobody has wanted
  them for a while, because writers of events look whether anybody listens; not at once, because whoever waits for one
  answer after the other would connect for each.
* A thread waits on the socket and hands messages to the audience. After a silence it asks the server for a sign of
  life, because a connection that is only listened to can be dead for hours.
* After a loss it connects and subscribes again, and has everyone look for themselves: what was published in between was
  not heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError

from pgjq.background import BackgroundThread
from pgjq.deadline import NO_ANSWER, acquire_in_time, call_in_time, wait_in_time
from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.storage.redis.error_translation import translated
from pgjq.storage.redis.subscribers import Subscribers

if TYPE_CHECKING:
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.subscribers import Notice, Subject, Subjects

# What a lost connection raises; anything else is logged.
EXPECTED: Final = (RedisError, OSError, TimeoutError)
PROBE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 0.5


class Listener(Protocol):
    """Hears a channel, in one mode."""

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Have messages put into a mailbox from now on; without a connection, wait for one."""
        ...

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Stop putting messages into a mailbox; the last one to leave ends the listening, some time later."""
        ...

    def resync(self) -> None:
        """Have everyone look for themselves, from any thread."""
        ...

    async def close_here(self) -> None:
        """Close what there is on this event loop."""
        ...

    def close(self) -> None:
        """Close the connections, and every mailbox, from any thread."""
        ...


class ThreadListener:
    """A channel's connection and its thread, for callers that block."""

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
        self._subscribers = Subscribers(self._channel, self._subjects, stays=self._stays)
        self._pubsub: Any = None
        self._thread: BackgroundThread | None = None

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        self.want_now(subject, box)

    def want_now(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Want, plainly."""
        if self._process != os.getpid():
            self._begin()  # In a forked child the connection and the thread are the parent's.
        with self._lock:
            self._check()
            self._subscribers.join(subject, box)
        try:
            self._start_once()
        except BaseException:
            self.leave(subject, box)
            raise

    def _start_once(self) -> None:
        if not acquire_in_time(self._starting):
            raise StorageUnavailableError(NO_ANSWER)
        try:
            if self._thread is None:
                self._start()
        finally:
            self._starting.release()

    def _check(self) -> None:
        if self._closing.is_set():
            message = "this storage has been closed"
            raise StorageError(message)

    def is_ready(self) -> bool:
        """Tell whether `want` would return at once."""
        return self._thread is not None and self._process == os.getpid()

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        with self._lock:
            self._subscribers.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        self._subscribers.resync()

    async def close_here(self) -> None:
        """Do nothing: the thread is everybody's."""

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        with self._lock:
            thread = self._thread
            self._closing.set()
            if self._pubsub is not None and self._pubsub.connection is not None and self._process == os.getpid():
                self._pubsub.connection.disconnect()  # Which wakes the thread that reads from it.
        if thread is not None and self._process == os.getpid():
            thread.join(timeout=5)
        self._subscribers.dismiss()

    def _start(self) -> None:
        """Connect in the caller's thread, so that what is wrong is the caller's to see; then listen in our own."""
        with translated():
            pubsub = call_in_time(self._subscribed, discard=self._drop)
        with self._lock:
            if self._closing.is_set():
                self._drop(pubsub)
            self._check()
            self._pubsub = pubsub
            thread = BackgroundThread("pgjq listener", lambda: self._run(thread), self._closing.wait)
            self._thread = thread
            thread.start()

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

    def _run(self, thread: BackgroundThread) -> None:
        closing, pubsub = self._closing, self._pubsub
        while not closing.is_set():
            try:
                pubsub = pubsub or self._reconnected()
                self._listen(pubsub, thread)
                break
            except Exception as error:  # noqa: BLE001  (a listener that dies leaves sleepers behind)
                # Cut off by `close`, a connection may raise anything.
                (thread.note if closing.is_set() or isinstance(error, EXPECTED) else thread.report)(error)
                self._drop(pubsub)
                pubsub = None
                closing.wait(RECONNECT_SECONDS)
        self._drop(pubsub)

    def _reconnected(self) -> Any:
        pubsub = self._subscribed()
        with self._lock:
            self._pubsub = pubsub
        self._subscribers.resync()
        return pubsub

    def _listen(self, pubsub: Any, thread: BackgroundThread) -> None:
        """Hand out messages until the storage is closed, or nobody has wanted any for a while."""
        asked = False
        while not (self._closing.is_set() or self._is_over()):
            thread.touch()
            message = pubsub.get_message(timeout=PROBE_SECONDS)
            if message is not None:
                asked = False
                if message["type"] == "message":
                    self._subscribers.tell(message["data"])
                elif message["type"] == "subscribe":
                    self._subscribers.resync()  # Somebody's client connects again by itself, and does not tell.
            elif asked:
                raise Lost("the server has fallen silent")
            else:
                pubsub.ping()
                asked = True

    def _is_over(self) -> bool:
        with self._lock:
            if not self._subscribers.is_gone():
                return False
            self._thread = self._pubsub = None
            return True

    def _drop(self, pubsub: Any) -> None:
        if pubsub is not None:
            with contextlib.suppress(Exception):
                pubsub.close()


class AwaitedListener:
    """A listening thread, for coroutines: where it has to connect first, that is waited for on a thread."""

    def __init__(self, listener: ThreadListener) -> None:
        self._listener = listener

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        listener = self._listener
        if listener.is_ready():
            listener.want_now(subject, box)
            return
        try:
            with translated():
                await wait_in_time(asyncio.to_thread(listener.want_now, subject, box))
        except BaseException:
            box.close()  # A thread that is about to note it sees that nobody wants it any more.
            listener.leave(subject, box)
            raise

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        self._listener.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        self._listener.resync()

    async def close_here(self) -> None:
        """Do nothing: the thread is everybody's."""

    def close(self) -> None:
        """See `Listener`."""
        self._listener.close()
