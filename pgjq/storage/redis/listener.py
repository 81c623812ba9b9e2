"""Listeners: one listening connection for each channel that this process subscribes to.

There are three channels: `wake` names queues that may have work for sleeping workers, `answers` the awaited jobs that
have ended, `events` carries the events of all jobs. Here a thread listens, for sync callers and for clients of the
caller; `async_listener.py` has the listener of an event loop, with the same rules.

Rules of the protocol
* `want` returns when the server has confirmed the subscription: every later message is received. The wake channel
  stays subscribed for good, because `lua/peek.lua` records sleepers. The others are left when they have had no
  subscriber for a while, because scripts publish events only to channels with subscribers; not at once, because a
  caller that waits for one result after the other would reconnect for each.
* A thread waits on the socket and passes messages to the subscribers. After a silence it pings the server, because a
  connection that only listens can be dead for hours without notice. If the server does not answer, the other idle
  connections are dropped before subscribers use them: they may be dead in the same way.
* After a loss it reconnects, subscribes again, and has every subscriber read the storage: messages published in
  between were lost.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError

from pgjq.background import BackgroundThread
from pgjq.deadline import NO_ANSWER, acquire_in_time, call_in_time, run_on_thread, wait_in_time
from pgjq.errors import StorageUnavailableError, storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.redis.error_translation import translated
from pgjq.storage.redis.subscribers import Subscribers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.subscribers import Notice, Subject, Subjects

# What a lost connection raises; anything else is logged.
EXPECTED: Final = (RedisError, OSError, TimeoutError)
PROBE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 0.5


class Listener(Protocol):
    """The listener of one channel, in one mode."""

    async def subscribe(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Put messages about a subject into a mailbox from now on; connect first if necessary."""
        ...

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Put no more messages into a mailbox; some time after the last one left, listening ends."""
        ...

    def resync(self) -> None:
        """Have every subscriber read the storage, from any thread."""
        ...

    async def close_here(self) -> None:
        """Close the connections of the running event loop."""
        ...

    def close(self) -> None:
        """Close the connections, and every mailbox, from any thread."""
        ...


class ThreadListener:
    """A channel's connection and its thread, for callers that block."""

    def __init__(
        self,
        client: Any,
        channel: str,
        subjects: Subjects,
        *,
        stays: bool,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._channel = channel
        self._subjects = subjects
        self._stays = stays
        self._on_silence = on_silence
        self._begin()

    def _begin(self) -> None:
        self._fork = ForkCheck()
        self._lock = threading.RLock()  # Guards the fields; never held during a call to the server.
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._subscribers = Subscribers(self._channel, self._subjects, stays=self._stays)
        self._pubsub: Any = None
        self._thread: BackgroundThread | None = None

    async def subscribe(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        self.subscribe_now(subject, box)

    def subscribe_now(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """Do what `want` does, without a coroutine."""
        if self._fork.happened:
            self._begin()  # In a forked child the connection and the thread belong to the parent.
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
            raise storage_closed()

    def is_ready(self) -> bool:
        """Return whether `want` would return at once."""
        return self._thread is not None and not self._fork.happened

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        with self._lock:
            self._subscribers.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        self._subscribers.resync()

    async def close_here(self) -> None:
        """Do nothing: the thread serves all event loops."""

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        with self._lock:
            thread = self._thread
            self._closing.set()
            if self._pubsub is not None and self._pubsub.connection is not None and not self._fork.happened:
                self._pubsub.connection.disconnect()  # This wakes the thread that reads from it.
        if thread is not None and not self._fork.happened:
            thread.join(timeout=5)
        self._subscribers.dismiss()

    def _start(self) -> None:
        """Connect in the caller's thread, so that the caller gets the error; then start listening."""
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
        """Connect and subscribe, and wait for the server's confirmation."""
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
            except Exception as error:  # noqa: BLE001  (if the listener ended, sleepers would not be woken)
                # A connection that `close` has cut off may raise anything.
                (thread.note if closing.is_set() or isinstance(error, EXPECTED) else thread.report)(error)
                self._drop(pubsub)
                if isinstance(error, TimeoutError):
                    self._on_silence()
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
        """Pass messages on until the storage is closed, or there has been no subscriber for a while."""
        pinged = False
        while not (self._closing.is_set() or self._is_over()):
            thread.touch()
            message = pubsub.get_message(timeout=PROBE_SECONDS)
            if message is not None:
                pinged = False
                if message["type"] == "message":
                    self._subscribers.deliver(message["data"])
                elif message["type"] == "subscribe":
                    self._subscribers.resync()  # The caller's client reconnects by itself, without an error.
            elif pinged:
                raise TimeoutError("Redis did not answer PING")
            else:
                pubsub.ping()
                pinged = True

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
    """A `ThreadListener` for coroutines: where it must connect first, a thread waits for that."""

    def __init__(self, listener: ThreadListener) -> None:
        self._listener = listener

    async def subscribe(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        listener = self._listener
        if listener.is_ready():
            listener.subscribe_now(subject, box)
            return
        try:
            with translated():
                await wait_in_time(run_on_thread(lambda: listener.subscribe_now(subject, box)))
        except BaseException:
            box.close()  # The thread, if it is about to add the mailbox, sees that it is closed.
            listener.leave(subject, box)
            raise

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        self._listener.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        self._listener.resync()

    async def close_here(self) -> None:
        """Do nothing: the thread serves all event loops."""

    def close(self) -> None:
        """See `Listener`."""
        self._listener.close()
