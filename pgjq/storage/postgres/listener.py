"""The listener: one connection for all notifications of a storage.

Protocol
* A subscriber registers a mailbox for a topic, and relies on it only after the server knows the topic: LISTEN has run,
  and for topics that writers check before they notify, this session holds a shared advisory lock that shows a listener
  (`sql/functions/0001_wake.sql`). When the last subscriber leaves such a topic, the listener releases the lock and
  writers stop notifying. Results need no such lock: a waiter marks its job.
* A thread waits on the socket and puts notifications into mailboxes. After a silence it checks that the same session
  still answers: a connection that only receives can be dead for hours. No answer in time is a loss, and the idle
  connections of the pools are replaced before subscribers use them: they may be dead in the same way.
* While only the event loop of a sleeping worker waits for notifications, it reads the socket itself (`read_here`): one
  switch of threads less before its claim. Any other subscriber makes the thread read.
* After a loss it reconnects, registers every topic again, and puts `RESYNC` into every mailbox: notifications in
  between were lost, so every subscriber reads the storage. An unexpected exception is a loss as well, and is logged.
* Behind a transaction pooler the session that ran LISTEN serves any client at the next statement. The listener detects
  this by the process number, at connect and at every probe; then it stops listening and sets `behind_pooler`, and
  callers poll. It leaves no lock behind in the pooler's sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from pgjq.background import BackgroundThread
from pgjq.deadline import holding
from pgjq.errors import storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.listen_connection import ListenConnection, join_reader
from pgjq.storage.postgres.loop_reader import WakeupPipe, read_on_loop
from pgjq.storage.postgres.mailboxes import RESYNC, Mailboxes, Notice, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.queries import Queries

# After this long without data, and as long again without an answer to a probe, the connection is lost: ten seconds.
PROBE_SECONDS: Final = 5.0
# The same, while only workers listen: they poll besides.
PROBE_SELDOM_SECONDS: Final = 20.0
# How soon the thread reads instead of a loop that has stopped reading, because its worker has jobs to run.
TAKE_OVER_SECONDS: Final = 1.0
RECONNECT_SECONDS: Final = 0.5
# A woken subscriber leaves its topic and goes to work; UNLISTEN is sent this much later, when that work has begun.
TIDY_SECONDS: Final = 0.01


class Listener:
    """The listener's connection, its thread, and the mailboxes by topic."""

    def __init__(self, conninfo: str, queries: Queries, on_silence: Callable[[], None]) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._on_silence = on_silence
        self._inherited: list[object] = []
        self._begin()

    def _begin(self) -> None:
        self.behind_pooler = False
        self._lock = threading.Lock()  # Guards the state in memory; never held while waiting for the server.
        self._server_lock = threading.RLock()  # Held by a thread that sends statements or replaces the connection.
        self._mailboxes = Mailboxes(self._lock)
        self._channels: set[str] = set()
        self._registered: set[Topic] = set()
        self._read_on_loops: set[Mailbox[Notice]] = set()
        self._thread_reads = True
        self._connection: ListenConnection | None = None
        self._broken = False
        self._unregister_at: float | None = None
        self._thread: BackgroundThread | None = None
        self._closing = threading.Event()
        self._wakeup = WakeupPipe()
        self._fork = ForkCheck()

    def subscribe(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Put notifications of a topic into a mailbox from now on; may wait for the server."""
        if self.note(topic, box):
            self.listen_for(topic, box)

    def note(self, topic: Topic, box: Mailbox[Notice]) -> bool:
        """Register a mailbox without waiting; return whether `tell` must be called for the topic."""
        if self._fork.happened:
            self._inherited.append(self._connection)  # The connection and the thread belong to the parent.
            self._begin()
        with self._lock:
            if self._closing.is_set():
                raise storage_closed()
            if box.closed:
                return False  # The subscriber has left meanwhile.
            self._mailboxes.add(topic, box)
            if not self._thread_reads and self._mailboxes.need_thread(self._read_on_loops):
                self._wakeup.wake()
            return not self.behind_pooler and (self._thread is None or self._is_unregistered(topic))

    def listen_for(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Make the server know a topic; the first call connects, so that its caller gets the error."""
        with holding(self._server_lock, "the listening connection did not become free in time"):
            if self.behind_pooler or self._closing.is_set():
                return
            if self._thread is None:
                try:
                    with translated():
                        self._connect()
                except BaseException:
                    self._drop()
                    self.leave(topic, box)
                    raise
                if not self.behind_pooler:
                    self._start()
            elif (connection := self._connection) is not None:
                try:
                    self._register_topics(connection)
                except psycopg.Error:
                    self._fail(connection)

    def _start(self) -> None:
        """Start the thread, unless the storage was closed: `close` joins only a started thread."""
        with self._lock:
            if not self._closing.is_set():
                self._thread = BackgroundThread("pgjq listener", self._run, self._closing.wait)
                self._thread.start()
                return
        self._drop()

    @contextlib.contextmanager
    def read_here(self, box: Mailbox[Notice]) -> Generator[None]:
        """Read on the running event loop until the block ends, for its mailbox, if possible."""
        connection = self._connection
        if connection is None or self._fork.happened:
            yield
            return
        loop = asyncio.get_running_loop()
        with read_on_loop(connection, lambda: self._unregister_soon(loop), lambda: self._fail(connection)) as reads:
            if reads:
                with self._lock:
                    self._read_on_loops.add(box)
            try:
                yield
            finally:
                with self._lock:
                    self._read_on_loops.discard(box)

    def _unregister_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._unregister_at is None:
            self._unregister_at = time.monotonic() + TIDY_SECONDS
            loop.call_later(TIDY_SECONDS, self._wakeup.wake)

    def _fail(self, connection: ListenConnection) -> None:
        """Make the thread replace a connection; it registers every topic again."""
        self._broken = self._broken or connection is self._connection
        self._wakeup.wake()

    def doubt(self) -> None:
        """Probe the connection now: another one to this server has been silent."""
        if (connection := self._connection) is not None and not self._fork.happened:
            connection.last_word = -inf
            self._wakeup.wake()

    def leave(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Remove a mailbox. The thread tells the server later: a woken subscriber has work to do."""
        with self._lock:
            if not self._mailboxes.remove(topic, box):
                return
            if topic in self._registered and self._unregister_at is None and not self._closing.is_set():
                self._wakeup.wake()

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        if self._fork.happened:
            return  # The connection and the thread belong to the parent.
        with self._lock:
            self._closing.set()
            boxes = self._mailboxes.all()
            thread = self._thread
        for box in boxes:
            box.close()
        self._wakeup.wake()
        if thread is not None:
            join_reader(thread, self._connection)
        self._drop()
        self._wakeup.close()

    def _is_unregistered(self, topic: Topic) -> bool:
        return topic.channel not in self._channels or (topic.is_asked_for and topic not in self._registered)

    def _connect(self) -> None:
        connection = ListenConnection(self._conninfo, self._mailboxes.deliver, self._on_silence)
        if connection.is_pooled:
            self._stop_listening(connection)
            return
        with self._server_lock:
            self._channels, self._registered, self._broken = set(), set(), False
            self._connection = connection
            self._register_topics(connection)

    def _register_topics(self, connection: ListenConnection) -> None:
        """Register on the server every topic that it does not know."""
        while True:
            with self._lock:
                missing = [topic for topic in self._mailboxes.topics if self._is_unregistered(topic)]
            if not missing:
                return
            for channel in {topic.channel for topic in missing} - self._channels:
                listen = sql.SQL("listen {}").format(sql.Identifier(self._queries.channel(channel)))
                connection.ask(listen.as_bytes())
                self._channels.add(channel)
            for topic in missing:
                if topic.is_asked_for:
                    connection.ask(self._queries.psycopg("presence_begin"), self._key(topic))
                    self._registered.add(topic)

    def _unregister_topics(self, connection: ListenConnection) -> None:
        """Unregister on the server the topics without mailboxes."""
        with self._server_lock:
            with self._lock:
                self._unregister_at = None
                left = self._registered - self._mailboxes.topics
                self._registered -= left  # A new subscriber of one of them registers it again, after this.
            for topic in left:
                connection.ask(self._queries.psycopg("presence_end"), self._key(topic))

    def _key(self, topic: Topic) -> dict[str, Any]:
        return {"channel": self._queries.channel(topic.channel), "subject": topic.subject}

    def _run(self) -> None:
        while not self._closing.is_set() and not self.behind_pooler:
            try:
                if self._connection is None:
                    self._connect()
                    self._mailboxes.put_everywhere(RESYNC)
                self._listen()
            except (psycopg.Error, OSError) as error:
                self._drop()
                if self._thread is not None:
                    self._thread.note(error)
                self._closing.wait(RECONNECT_SECONDS)
            except BaseException:  # BackgroundThread logs it, and calls this again.
                self._drop()
                raise
        self._drop()  # A connection that was made while the storage was closed.

    def _listen(self) -> None:
        while not self._closing.is_set() and (connection := self._connection) is not None:
            if self._thread is not None:
                self._thread.touch()
            if self._broken:
                raise psycopg.OperationalError("the connection failed in another thread")
            poll = select.poll()
            with self._lock:
                self._thread_reads = self._mailboxes.need_thread(self._read_on_loops)
            if self._thread_reads:
                poll.register(connection.fileno(), select.POLLIN)
            poll.register(self._wakeup, select.POLLIN)
            until = self._probe_at(connection) if self._unregister_at is None else self._unregister_at
            if not self._thread_reads:
                until = min(until, time.monotonic() + TAKE_OVER_SECONDS)
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}
            if self._wakeup.fileno() in ready:
                self._wakeup.clear()
                self._unregister_topics(connection)
            elif self._unregister_at is not None and self._unregister_at <= time.monotonic():
                self._unregister_topics(connection)
            if connection.fileno() in ready:
                self._unregister_at = self._unregister_at or time.monotonic() + TIDY_SECONDS
                connection.read()
            elif time.monotonic() >= self._probe_at(connection) and not connection.is_same_session():
                self._stop_listening(connection)
                self._mailboxes.put_everywhere(RESYNC)

    def _probe_at(self, connection: ListenConnection) -> float:
        often = self._mailboxes.need_notifications()
        return connection.last_word + (PROBE_SECONDS if often else PROBE_SELDOM_SECONDS)

    def _stop_listening(self, connection: ListenConnection) -> None:
        """Stop listening: other clients share this session."""
        self.behind_pooler = True
        self._connection = None
        connection.close()
        logging.getLogger("pgjq").warning(
            "notifications do not pass a transaction pooler: results and jobs are polled for, and events cannot be"
            " received; connect to the server directly"
        )

    def _drop(self) -> None:
        with self._server_lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
