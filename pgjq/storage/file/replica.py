"""A process's view of the jobs in a directory: the model in memory, kept up to date by the journal.

An operation is done under the directory's lock: read what others appended, let the model decide, append what it
changed as one line, let go of the lock, and sync. One rule holds for every answer: **it leaves only when all that it
is built on is on the disk.** Syncing happens outside the lock, so that the operations of other threads and processes
gather meanwhile and share the next one; see `journal` for why that is safe.

What each failure does:

* A process dies at any point: the kernel lets go of its lock; a line that is not whole is cut off by the next one.
* The line cannot be written (disk full, limit reached): it is cut off, the model is thrown away and read again when
  it is next needed, and the caller gets the error. Nothing has changed.
* Syncing fails: the caller gets the error and does not know; everything is written anew before anything else happens.
* Lines are damaged: the others count, the file is kept aside, and a new one is written from what is known.
* The file is cut off under those who have read it: they read it anew, so that all of them go by what it says now.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pgjq.errors import PgjqError, PolicyError, QueueNotFoundError, StorageError
from pgjq.options import DEFAULT_SETTINGS
from pgjq.storage.file import disk, journal_format
from pgjq.storage.file.error_translation import translated
from pgjq.storage.file.journal import Journal
from pgjq.storage.file.mutex import Mutex
from pgjq.storage.model.jobs import Jobs
from pgjq.storage.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from pgjq.storage.file.journal_format import Entry
    from pgjq.storage.file.layout import Layout
    from pgjq.storage.model.subscribers import Subscribers

R = TypeVar("R")

# A journal is written anew when it has tripled since: that costs no more than half of what was appended meanwhile.
LEAST, GROWTH = 4 << 20, 3
CHUNK = 500

logger = logging.getLogger("pgjq")


class Refused(NamedTuple):
    """An answer that is an error: nothing has changed, and like any other it is built on what must be on the disk."""

    error: PgjqError


def _attempt(verb: Callable[[Jobs], R], jobs: Jobs) -> R | Refused:
    try:
        return verb(jobs)
    except (PolicyError, QueueNotFoundError) as error:
        if jobs.has_changed:
            raise
        return Refused(error)


class Replica:
    """The jobs of a directory, as this process knows them."""

    def __init__(
        self, layout: Layout, clock: Callable[[], datetime], subscribers: Subscribers, announce: Callable[[], None]
    ) -> None:
        self._layout = layout
        self._clock = clock
        self._subscribers = subscribers
        self._announce = announce
        self._mutex = Mutex(layout)
        self._journal: Journal | None = None
        self._jobs = Jobs()
        self._generation = 0
        self._heard: tuple[int, int] | None = None  # Up to where this process has been told of what happened.
        self._base = 0  # The size of the journal when it was last written anew.
        self._closed = False

    def do(self, verb: Callable[[Jobs], R], *, durable: bool = True) -> R:
        """Do an operation, and announce it if it did anything that other processes may be waiting for."""
        with translated(self._layout.directory):
            self._check_open()
            with self._mutex:
                self._check_open()
                answer, news, journal = self._perform(partial(_attempt, verb))
                end = journal.end
            if news:
                self._announce()
            if durable:
                journal.sync(end)
        if isinstance(answer, Refused):
            raise answer.error
        return answer

    def follow(self) -> None:
        """Learn what others did, if there is anything, and tell it here."""
        if self._has_news():
            self.do(lambda _: None, durable=False)

    def _has_news(self) -> bool:
        """Look without the lock: the worst that can come of it is another look."""
        journal = self._journal
        try:
            return journal is None or journal.state != (True, journal.end)
        except OSError:  # Another thread has just closed it, to open another.
            return True

    def give_up(self) -> None:
        """Have no caller wait any longer for a lock that another process has."""
        self._mutex.patience = 0.0

    def close(self) -> None:
        """Close the files; who is inside an operation finishes it first."""
        with self._mutex.turn:
            self._closed = True
            self._drop()
            self._mutex.close()

    def abandon(self) -> None:
        """Close the files in a forked child, where the locks in memory may be held by threads that are not here."""
        for held in (self._journal, self._mutex):
            if held is not None:
                held.abandon()

    def _check_open(self) -> None:
        if self._closed:
            message = "this storage has been closed"
            raise StorageError(message)

    def _perform(self, verb: Callable[[Jobs], R]) -> tuple[R, bool, Journal]:
        try:
            journal = self._catch_up()
            jobs = self._jobs
            jobs.begin(self._clock())
            answer = verb(jobs)
            if jobs.has_changed:
                journal.append(journal_format.write(jobs))
                self._heard = self._generation, journal.end
        except BaseException:
            self._drop()  # What the model knows and the journal does not has not happened.
            raise
        # A notice may come before the disk has it: whoever acts on it looks, and looking waits for the disk.
        self._subscribers.tell(jobs)
        news = bool(jobs.queue_changes) or any(change.event or change.fields is None for change in jobs.changes)
        return answer, news, self._shorten(journal)

    def _drop(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._journal = None
        self._jobs = Jobs()

    def _catch_up(self) -> Journal:
        """Read what others appended, follow the journal if it was replaced, and mend what is broken."""
        journal = self._journal
        if journal is not None:
            current, size = journal.state
            if current and size == journal.end and not journal.is_suspect:
                return journal
            continues = journal.continues
            if continues:
                self._read(journal)
            else:
                logger.warning("%s was cut off by somebody; what it said there is lost", self._layout.journal)
            if not (current and continues):
                journal.reach(journal.end)  # Whoever put another in its place synced that.
                self._drop()
                journal = None
        if journal is None:
            journal = self._load()
        return self._mend(journal)

    def _load(self) -> Journal:
        self._layout.prepare()
        if not self._layout.journal.exists():
            disk.replace(self._layout.journal, [journal_format.header(1, 0)])
        self._journal = Journal(self._layout.journal)
        self._read(self._journal)
        self._subscribers.wake()
        return self._journal

    def _read(self, journal: Journal) -> None:
        """Read what is new, and tell what of it was not told yet; what was there when this process came is no news."""
        for content in journal.read():
            if "journal" in content:
                self._take_header(content)
                continue
            self._take(content)
            if "records" in content:
                self._base = journal.end
            elif self._heard is not None and (self._generation, journal.end) > self._heard:
                self._subscribers.tell(self._jobs)
        self._heard = self._generation, journal.end

    def _take_header(self, content: dict[str, Any]) -> None:
        if content["journal"] != journal_format.FORMAT:
            message = f"{self._layout.journal} was written by another version of pgjq, which this one cannot read"
            raise StorageError(message)
        self._jobs.last_seq = content["last_seq"]
        self._generation, self._base = content["generation"], 0
        if self._heard is not None and self._generation > self._heard[0] + 1:
            self._subscribers.miss()  # A whole journal was written and replaced while this process slept.

    def _take(self, content: dict[str, Any]) -> None:
        """Make the changes of a line again."""
        at, entries, changes = journal_format.read(content)
        self._jobs.begin(at)
        for entry in entries:
            self._apply(entry)
        for name, known, event, facts in changes:
            if known is None:
                self._jobs.undefine(name)
            else:
                self._jobs.define(name, known, event, facts)

    def _apply(self, entry: Entry) -> None:
        jobs, record = self._jobs, self._jobs.records.get(entry.seq)
        match entry.fields:
            case None if record is not None:
                jobs.forget(record)
            case dict() as values if record is not None:
                jobs.change(record, entry.event, entry.facts, **values)
            case {"queue": _} as values:
                values.setdefault("settings", DEFAULT_SETTINGS)
                jobs.add(Record(seq=entry.seq, **values), entry.event)
            case _:
                return  # A change of a job that was lost with a damaged line.

    def _mend(self, journal: Journal) -> Journal:
        if journal.damaged:
            self._layout.keep_aside(self._layout.journal, "lines of it are damaged; the others count")
        elif journal.torn:
            journal.cut()
        return self._rewrite() if journal.damaged or journal.is_suspect else journal

    def _shorten(self, journal: Journal) -> Journal:
        """Write the journal anew if it has become long; if that cannot be done now, try again when it is longer."""
        if journal.end < max(LEAST, GROWTH * self._base):
            return journal
        try:
            return self._rewrite()
        except OSError as error:
            logger.warning("the journal could not be shortened", exc_info=error)
            self._base = journal.end
            return journal

    def _rewrite(self) -> Journal:
        size = disk.replace(self._layout.journal, self._snapshot())
        new = Journal(self._layout.journal)
        new.reach(size)
        self._generation += 1
        self._heard = self._generation, size
        if self._journal is not None:
            self._journal.reach(self._journal.end)  # All of it is on the disk, in its new form.
            self._journal.close()
        self._journal = new
        self._base = size
        return new

    def _snapshot(self) -> Iterator[bytes]:
        yield journal_format.header(self._generation + 1, self._jobs.last_seq)
        now, records = self._clock(), list(self._jobs.records.values())
        yield journal_format.write_queues(now, self._jobs.queues)
        for start in range(0, len(records), CHUNK):
            yield journal_format.write_records(now, records[start : start + CHUNK])
