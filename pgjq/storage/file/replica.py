"""A process's copy of the jobs in a directory: a model in memory that follows the journal.

An operation takes the directory's lock, reads the lines of other processes, lets the model decide, appends its changes
as one line, releases the lock, and syncs. **It returns only when everything its result is based on is on the disk.**
The sync happens outside the lock, so that operations of other threads and processes collect meanwhile and share the
next sync; see `journal` for why that is safe.

What each failure does:

* A process dies at any point: the kernel releases its lock; the next process cuts an incomplete line off.
* The line cannot be written (disk full, limit reached): it is cut off, the model is discarded and read again when it is
  next needed, and the caller gets the error. Nothing has changed.
* The sync fails: the caller gets the error, and the outcome is unknown; the next operation rewrites the journal first.
* Lines are damaged: the others count, the file is kept in `aside`, and a new one is written from the model.
* Another program cuts the file off: processes that have read it read it again, so that all have the same content.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pgjq.errors import PgjqError, PolicyError, QueueNotFoundError, StorageError, storage_closed
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

# A journal is rewritten when it has tripled: that writes at most half as much as was appended since the last rewrite.
LEAST, GROWTH = 4 << 20, 3
CHUNK = 500

logger = logging.getLogger("pgjq")


class Refused(NamedTuple):
    """An error that an operation returns: nothing has changed; it is raised after the sync."""

    error: PgjqError


def _attempt(verb: Callable[[Jobs], R], jobs: Jobs) -> R | Refused:
    try:
        return verb(jobs)
    except (PolicyError, QueueNotFoundError) as error:
        if jobs.has_changed:
            raise
        return Refused(error)


class Replica:
    """This process's copy of the jobs in a directory."""

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
        self._published: tuple[int, int] | None = None  # The position up to which subscribers were notified.
        self._base = 0  # The size of the journal after its last rewrite.
        self._closed = False

    def do(self, verb: Callable[[Jobs], R], *, durable: bool = True) -> R:
        """Do an operation, and notify other processes if it changed anything they may wait for."""
        with translated(self._layout.directory):
            self._check_open()
            with self._mutex:
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
        """Read the changes of other processes, if any, and notify this process's subscribers."""
        if self._has_new_entries():
            self.do(lambda _: None, durable=False)

    def _has_new_entries(self) -> bool:
        """Check without the lock; a wrong result only costs another check."""
        journal = self._journal
        try:
            return journal is None or journal.state != (True, journal.end)
        except OSError:  # Another thread has just closed it, to open a new one.
            return True

    def abort_lock_waits(self) -> None:
        """Make callers that wait for another process's lock fail at once."""
        self._mutex.patience = 0.0

    def close(self) -> None:
        """Close the files, after the operation in progress."""
        with self._mutex.turn:
            self._closed = True
            self._drop()
            self._mutex.close()

    def abandon(self) -> None:
        """Close the files in a forked child, whose locks in memory may belong to missing threads."""
        for held in (self._journal, self._mutex):
            if held is not None:
                held.abandon()

    def _check_open(self) -> None:
        if self._closed:
            raise storage_closed()

    def _perform(self, verb: Callable[[Jobs], R]) -> tuple[R, bool, Journal]:
        try:
            journal = self._catch_up()
            jobs = self._jobs
            jobs.begin(self._clock())
            answer = verb(jobs)
            if jobs.has_changed:
                journal.append(journal_format.write(jobs))
                self._published = self._generation, journal.end
        except BaseException:
            self._drop()  # The model has changes that the journal has not: they did not happen.
            raise
        # A notification may precede the sync: its receiver then does an operation, which waits for the sync.
        self._subscribers.publish(jobs)
        news = bool(jobs.queue_changes or jobs.schedule_changes) or any(
            change.event or change.fields is None for change in jobs.changes
        )
        return answer, news, self._shorten(journal)

    def _drop(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._journal = None
        self._jobs = Jobs()

    def _catch_up(self) -> Journal:
        """Read the lines of other processes, from a new journal if it was replaced; repair damage."""
        journal = self._journal
        if journal is not None:
            current, size = journal.state
            if current and size == journal.end and not journal.is_suspect:
                return journal
            continues = journal.continues
            if continues:
                self._read(journal)
            else:
                logger.warning(
                    "%s was truncated by another program; the operations after that point are lost",
                    self._layout.journal,
                )
            if not (current and continues):
                journal.reach(journal.end)  # The process that replaced it has synced the new one.
                self._drop()
                journal = None
        if journal is None:
            journal = self._load()
        return self._repair(journal)

    def _load(self) -> Journal:
        self._layout.prepare()
        if not self._layout.journal.exists():
            disk.replace(self._layout.journal, [journal_format.header(1, 0)])
        self._journal = Journal(self._layout.journal)
        self._read(self._journal)
        self._subscribers.wake()
        return self._journal

    def _read(self, journal: Journal) -> None:
        """Read new lines, and notify subscribers of changes made since this process's first read."""
        for content in journal.read():
            try:
                self._take_line(content, journal)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                message = (
                    f"{self._layout.journal} has a line that pgjq did not write, or that a newer version wrote, before"
                    f" byte {journal.end}: upgrade pgjq, or take the line out while no process uses the directory"
                )
                raise StorageError(message) from error
        self._published = self._generation, journal.end

    def _take_line(self, content: dict[str, Any], journal: Journal) -> None:
        if "journal" in content:
            self._take_header(content)
            return
        self._take(content)
        if "records" in content:
            self._base = journal.end
        elif self._published is not None and (self._generation, journal.end) > self._published:
            self._subscribers.publish(self._jobs)

    def _take_header(self, content: dict[str, Any]) -> None:
        if content["journal"] != journal_format.FORMAT:
            message = f"{self._layout.journal} was written by another version of pgjq, which this one cannot read"
            raise StorageError(message)
        self._jobs.last_seq = content["last_seq"]
        self._generation, self._base = content["generation"], 0
        if self._published is not None and self._generation > self._published[0] + 1:
            self._subscribers.miss()  # A whole journal was written and replaced since this process read last.

    def _take(self, content: dict[str, Any]) -> None:
        """Apply the changes of a line to the model."""
        at, entries, changes, schedules = journal_format.read(content)
        self._jobs.begin(at)
        for entry in entries:
            self._apply(entry)
        for name, known, event, facts in changes:
            if known is None:
                self._jobs.remove_queue(name)
            else:
                self._jobs.define(name, known, event, facts)
        for change in schedules:
            self._jobs.set_schedule(change)

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

    def _repair(self, journal: Journal) -> Journal:
        if journal.damaged:
            self._layout.keep_aside(self._layout.journal, "lines of it are damaged; the others count")
        elif journal.torn:
            journal.cut()
        return self._rewrite() if journal.damaged or journal.is_suspect else journal

    def _shorten(self, journal: Journal) -> Journal:
        """Rewrite the journal if it has become long; after a failure, try again when it is longer."""
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
        self._published = self._generation, size
        if self._journal is not None:
            self._journal.reach(self._journal.end)  # Its content is on the disk, in the new file.
            self._journal.close()
        self._journal = new
        self._base = size
        return new

    def _snapshot(self) -> Iterator[bytes]:
        yield journal_format.header(self._generation + 1, self._jobs.last_seq)
        now, records = self._clock(), list(self._jobs.records.values())
        yield journal_format.write_queues(now, self._jobs.queues)
        if self._jobs.schedules.records:
            yield journal_format.write_schedules(now, self._jobs.schedules)
        for start in range(0, len(records), CHUNK):
            yield journal_format.write_records(now, records[start : start + CHUNK])
