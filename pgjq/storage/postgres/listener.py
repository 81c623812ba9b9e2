"""One listening connection for a whole storage.

Rules of the protocol
* Whoever wants to hear of a topic notes it, and has the server told before it relies on it: LISTEN has been run then,
  and for topics that writers ask for beforehand a shared advisory lock in this session tells them that somebody listens
  (`sql/functions/0001_notify.sql`). The last one who leaves such a topic gives the lock back, and writers stop
  notifying. Answers need no such lock: whoever waits for a job has it marked.
* A thread waits on the socket and hands notices to mailboxes. When nothing was heard for a while it asks, in the same
  session, who answers: a connection that is only listened to can be dead for hours. No answer in time is a loss.
* After a loss it connects again, takes every topic up again, and puts `RESYNC` into every mailbox: what happened in
  between was not heard, so everyone looks for themselves. An unexpected exception is a loss as well, and is logged.
* Behind a transaction pooler the session that was told to listen is anybody's at the next statement. It is recognised
  by its process number, at the beginning and by every probe; then nobody listens here, `deaf` says so, and whoever
  waits has to look now and then. No lock is left behind in the pooler's sessions.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import sql

from pgjq.background import BackgroundThread
from pgjq.deadline import current_deadline
from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.storage.malformed_notifications import MalformedLog
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.listen_connection import ListenConnection

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.postgres.queries import Queries

# Silence for this long, and then no answer for as long again, and the connection is given up: ten seconds.
PROBE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 0.5
# Whoever was woken leaves its topic and goes to work; telling the server so can wait until that has begun.
TIDY_SECONDS: Final = 0.01
RESYNC: Final = None
EVENTS: Final = "events"
WAKE: Final = "wake"
ANSWERS: Final = "answers"

Notice = str | None


class Topic(NamedTuple):
    """A channel, and within it what one waits for: a queue's name, a job, or "" for everything on the channel."""

    channel: str
    subject: str = ""
    job: str = ""

    @property
    def is_asked_for(self) -> bool:
        """Whether writers ask for listeners before they notify."""
        return self.channel != ANSWERS


class Listener:
    """The connection, its thread, and who wants to hear what."""

    def __init__(self, conninfo: str, queries: Queries) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._inherited: list[object] = []
        self._malformed = MalformedLog()
        self._begin()

    def _begin(self) -> None:
        self.deaf = False
        self._lock = threading.Lock()  # for what is in memory, and never held while the server is asked
        self._telling = threading.RLock()  # for whoever tells the server something, or replaces the line
        self._wants: dict[Topic, list[Mailbox[Notice]]] = {}
        self._heard: set[str] = set()
        self._present: set[Topic] = set()
        self._line: ListenConnection | None = None
        self._broken = False
        self._tidy_at: float | None = None
        self._thread: BackgroundThread | None = None
        self._closing = threading.Event()
        self._nudge_out, self._nudge_in = _pipe()
        self._process = os.getpid()

    def want(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Have notices of a topic put into a mailbox from now on; this may wait for the server."""
        if self.note(topic, box):
            self.tell(topic, box)

    def note(self, topic: Topic, box: Mailbox[Notice]) -> bool:
        """Have notices put into a mailbox, without waiting; say whether the server has to be told of the topic."""
        if self._process != os.getpid():
            self._inherited.append(self._line)  # The connection and the thread are the parent's.
            self._begin()
        with self._lock:
            if self._closing.is_set():
                message = "this storage has been closed"
                raise StorageError(message)
            if box.closed:
                return False  # Whoever wanted this has gone in the meantime.
            self._wants.setdefault(topic, []).append(box)
            return not self.deaf and (self._thread is None or self._is_news(topic))

    def tell(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Tell the server of a topic. The first one connects, so that what is wrong is the caller's to see."""
        with self._alone():
            if self.deaf or self._closing.is_set():
                return
            if self._thread is None:
                try:
                    with translated():
                        self._connect()
                except BaseException:
                    self._drop()
                    self.leave(topic, box)
                    raise
                if not self.deaf:
                    self._start()
            elif self._line is not None:
                # A connection that fails here is replaced by the thread, which takes every topic up again.
                try:
                    self._take_up(self._line)
                except psycopg.Error:
                    self._broken = True
                    self._nudge()

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Be the only one who tells the server something, or give up when the caller's time is over."""
        left = current_deadline().left
        if not self._telling.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            raise StorageUnavailableError("the listening connection did not become free in time")
        try:
            yield
        finally:
            self._telling.release()

    def _start(self) -> None:
        """Start the thread, unless the storage was closed meanwhile: `close` joins only a thread that has started."""
        with self._lock:
            if not self._closing.is_set():
                self._thread = BackgroundThread("pgjq listener", self._run, self._closing.wait)
                self._thread.start()
                return
        self._drop()

    def leave(self, topic: Topic, box: Mailbox[Notice]) -> None:
        """Stop putting notices into a mailbox. Telling the server is left to the thread: whoever was woken has work."""
        with self._lock:
            boxes = self._wants.get(topic, [])
            if box in boxes:
                boxes.remove(box)
            if boxes or self._wants.pop(topic, None) is None:
                return
            if topic in self._present and self._tidy_at is None and not self._closing.is_set():
                self._nudge()

    def close(self) -> None:
        """Stop the thread, close the connection and every mailbox."""
        if self._process != os.getpid():
            return  # All of it is the parent's.
        with self._lock:
            self._closing.set()
            boxes = [box for boxes in self._wants.values() for box in boxes]
            thread = self._thread
        for box in boxes:
            box.close()
        self._nudge()
        if thread is not None:
            thread.join(timeout=5)
        self._drop()
        os.close(self._nudge_in)
        os.close(self._nudge_out)

    def _is_news(self, topic: Topic) -> bool:
        return topic.channel not in self._heard or (topic.is_asked_for and topic not in self._present)

    def _connect(self) -> None:
        line = ListenConnection(self._conninfo, self._deliver)
        if line.is_pooled:
            self._go_deaf(line)
            return
        with self._telling:
            self._heard, self._present, self._broken = set(), set(), False
            self._line = line
            self._take_up(line)

    def _take_up(self, line: ListenConnection) -> None:
        """Tell the server of every topic that it does not know of."""
        while True:
            with self._lock:
                news = [topic for topic in self._wants if self._is_news(topic)]
            if not news:
                return
            for channel in {topic.channel for topic in news} - self._heard:
                listen = sql.SQL("listen {}").format(sql.Identifier(self._queries.channel(channel)))
                line.ask(listen.as_bytes())
                self._heard.add(channel)
            for topic in news:
                if topic.is_asked_for:
                    line.ask(self._queries.psycopg("presence_begin"), self._key(topic))
                    self._present.add(topic)

    def _lay_down(self, line: ListenConnection) -> None:
        """Tell the server of the topics that nobody wants any more."""
        with self._telling:
            with self._lock:
                self._tidy_at = None
                left = self._present - self._wants.keys()
                self._present -= left  # Whoever wants one of them now has the server told again, after this.
            for topic in left:
                line.ask(self._queries.psycopg("presence_end"), self._key(topic))

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_in, b"x")

    def _key(self, topic: Topic) -> dict[str, Any]:
        return {"channel": self._queries.channel(topic.channel), "subject": topic.subject}

    def _run(self) -> None:
        while not self._closing.is_set() and not self.deaf:
            try:
                if self._line is None:
                    self._connect()
                    self._tell_everyone(RESYNC)
                self._listen()
            except (psycopg.Error, OSError) as error:
                self._drop()
                if self._thread is not None:
                    self._thread.note(error)
                self._closing.wait(RECONNECT_SECONDS)
            except BaseException:  # Its supervisor logs it, and calls this again.
                self._drop()
                raise

    def _listen(self) -> None:
        while not self._closing.is_set() and (line := self._line) is not None:
            if self._thread is not None:
                self._thread.touch()
            if self._broken:
                raise psycopg.OperationalError("the connection failed somebody else")
            poll = select.poll()
            poll.register(line.fileno(), select.POLLIN)
            poll.register(self._nudge_out, select.POLLIN)
            until = line.last_word + PROBE_SECONDS if self._tidy_at is None else self._tidy_at
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}
            if self._nudge_out in ready:
                os.read(self._nudge_out, 4096)
                self._lay_down(line)
            elif self._tidy_at is not None and self._tidy_at <= time.monotonic():
                self._lay_down(line)
            if line.fileno() in ready:
                self._tidy_at = self._tidy_at or time.monotonic() + TIDY_SECONDS
                line.read()
            elif time.monotonic() >= line.last_word + PROBE_SECONDS and not line.is_same_session():
                self._go_deaf(line)
                self._tell_everyone(RESYNC)

    def _go_deaf(self, line: ListenConnection) -> None:
        """Give up listening: this session is not ours alone."""
        self.deaf = True
        self._line = None
        line.close()
        logging.getLogger("pgjq").warning(
            "notices do not come through a transaction pooler: answers and jobs are looked for every so often instead,"
            " and events cannot be heard; connect directly to have all of them at once"
        )

    def _deliver(self, channel: str, payload: str) -> None:
        """Hand a notice to those who want it. Anybody may notify anything: what cannot be read must not deafen us."""
        try:
            self._sort_out(channel.rpartition(".")[2], payload)
        except Exception as error:  # noqa: BLE001
            self._malformed.note(channel, error)

    def _sort_out(self, channel: str, payload: str) -> None:
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
            boxes = tuple(self._wants.get(topic, ()))
        for box in boxes:
            box.put(notice)

    def _put_for_queue(self, queue: str, notice: Notice) -> None:
        """Notify the waiters of every job of a queue, which has been deleted."""
        with self._lock:
            topics = [topic for topic in self._wants if topic.channel == ANSWERS and topic.subject == queue]
        for topic in topics:
            self._put(topic, notice)

    def _tell_everyone(self, notice: Notice) -> None:
        with self._lock:
            boxes = [box for boxes in self._wants.values() for box in boxes]
        for box in boxes:
            box.put(notice)

    def _drop(self) -> None:
        with self._telling:
            line, self._line = self._line, None
            if line is not None:
                line.close()


def _pipe() -> tuple[int, int]:
    """Make a pipe for nudges; a full one is nudge enough, so writing to it never waits."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    return out, into
