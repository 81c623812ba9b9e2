"""One listening connection for a whole storage.

Rules of the protocol
* Whoever wants to hear of a topic says so with `want`, which returns when the server knows: LISTEN has been run, and
  a shared advisory lock in this session tells writers that somebody listens (`sql/functions/0001_notify.sql`). The
  last one who leaves a topic gives the lock back, and writers stop notifying.
* A thread waits on the socket and hands notices to mailboxes. It asks the server something when it has been silent
  for a while, because a connection that is only listened to can be dead for hours.
* After a loss it connects again, takes every topic up again, and puts `RESYNC` into every mailbox: what happened in
  between was not heard, so everyone looks for themselves.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import sql

from pgjq.errors import StorageError
from pgjq.storage.postgres.failures import translated

if TYPE_CHECKING:
    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.queries import Queries

PROBE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 0.5
# A peer that is gone is noticed within about ten seconds, by us and by the kernel alike.
ALIVE: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,
    "application_name": "pgjq listener",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
RESYNC: Final = None
EVENTS: Final = "events"
WAKE: Final = "wake"

Notice = str | None


class Topic(NamedTuple):
    """A channel, and within it what one waits for: a queue's name, or "" for everything on the channel."""

    channel: str
    subject: str = ""


class Listener:
    """The connection, its thread, and who wants to hear what."""

    def __init__(self, conninfo: str, queries: Queries) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._lock = threading.RLock()
        self._wants: dict[Topic, list[Mailbox[Notice]]] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._present: set[Topic] = set()
        self._nudge_out, self._nudge_in = _pipe()
        self._process = os.getpid()
        self._inherited: list[object] = []

    def want(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Have notices of a topic put into a mailbox from now on."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            if self._closing.is_set():
                message = "this storage has been closed"
                raise StorageError(message)
            if box.closed:
                return  # Whoever wanted this has gone in the meantime.
            if self._thread is None:
                self._start()
            self._wants.setdefault(topic, []).append(box)
            # Without a connection, the thread is about to make one and takes every topic up then.
            if self._connection is not None and topic not in self._present:
                self._take_up(self._connection, topic)

    def leave(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Stop putting notices into a mailbox. Telling the server is left to the thread: whoever was woken has work."""
        with self._lock:
            boxes = self._wants.get(topic, [])
            if box in boxes:
                boxes.remove(box)
            if not boxes and self._wants.pop(topic, None) is not None and not self._closing.is_set():
                self._nudge()

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        with self._lock:
            self._closing.set()
            boxes = [box for boxes in self._wants.values() for box in boxes]
            thread = self._thread
        self._nudge()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        if self._connection is not None:
            self._connection.close()
        for box in boxes:
            box.close()
        os.close(self._nudge_in)
        os.close(self._nudge_out)

    def _leave_to_parent(self) -> None:
        """Start anew in a forked child: the connection and the thread are the parent's."""
        self._inherited.append(self._connection)
        self._process, self._connection, self._thread, self._wants = os.getpid(), None, None, {}
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._present, (self._nudge_out, self._nudge_in) = set(), _pipe()

    def _start(self) -> None:
        """Connect in the caller's thread, so that what is wrong is the caller's to see; then listen in our own."""
        with translated():
            self._connect()
        self._thread = threading.Thread(target=self._run, name="pgjq listener", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        connection = psycopg.connect(self._conninfo, **ALIVE)
        connection.add_notify_handler(self._deliver)
        with self._lock:
            for channel in (WAKE, EVENTS):
                connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._queries.channel(channel))))
            for topic in self._wants:
                connection.execute(self._queries.psycopg("presence_begin"), self._key(topic))
            self._present = set(self._wants)
            self._connection = connection

    def _take_up(self, connection: psycopg.Connection[Any], topic: Topic) -> None:
        # A connection that fails here is found dead by the thread, too, which takes every topic up again.
        with contextlib.suppress(psycopg.Error):
            connection.execute(self._queries.psycopg("presence_begin"), self._key(topic))
            self._present.add(topic)

    def _lay_down(self, connection: psycopg.Connection[Any]) -> None:
        """Tell the server of the topics that nobody wants any more."""
        with self._lock:
            for topic in self._present - self._wants.keys():
                connection.execute(self._queries.psycopg("presence_end"), self._key(topic))
                self._present.discard(topic)

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_in, b"x")

    def _key(self, topic: Topic) -> dict[str, Any]:
        return {"channel": self._queries.channel(topic.channel), "subject": topic.subject}

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                if self._connection is None:
                    self._connect()
                    self._tell_everyone(RESYNC)
                self._listen()
            except (psycopg.Error, OSError):
                self._drop()
                self._closing.wait(RECONNECT_SECONDS)

    def _listen(self) -> None:
        while not self._closing.is_set() and (connection := self._connection) is not None:
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLIN)
            poll.register(self._nudge_out, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(PROBE_SECONDS * 1000)}
            if not ready:
                connection.execute("select 1")
            self._dispatch(connection)
            if self._nudge_out in ready:
                os.read(self._nudge_out, 4096)
                self._lay_down(connection)

    def _dispatch(self, connection: psycopg.Connection[Any]) -> None:
        """Hand out what has arrived; what arrives while somebody runs a statement here goes to `_deliver` by itself."""
        with connection.lock:
            connection.pgconn.consume_input()
            while (notice := connection.pgconn.notifies()) is not None:
                self._deliver(psycopg.Notify(notice.relname.decode(), notice.extra.decode(), notice.be_pid))

    def _deliver(self, notice: psycopg.Notify) -> None:
        channel = notice.channel.rpartition(".")[2]
        topic = Topic(channel, notice.payload if channel == WAKE else "")
        for box in tuple(self._wants.get(topic, ())):
            box.put(notice.payload)

    def _tell_everyone(self, notice: Notice) -> None:
        with self._lock:
            boxes = [box for boxes in self._wants.values() for box in boxes]
        for box in boxes:
            box.put(notice)

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _pipe() -> tuple[int, int]:
    """Make a pipe for nudges; a full one is nudge enough, so writing to it never waits."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    return out, into
