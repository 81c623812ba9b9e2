"""The steps of a scenario: values that say what is done to a storage, whatever the storage answered before.

A step that needs a run or a generated id of an earlier step names it by its place: run 0 is the one that was claimed
last, run 1 the one before, and "made 0" is the first id that the storage or the client generated. So any step can be
left out of a scenario, and the rest can still be played.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from pgjq.job import NewJob
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed, Discard, Outcome, Snooze, decide
from pgjq.outcome import Retry as RetryOrder
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration

if TYPE_CHECKING:
    from pgjq.storage.base import Claimed
    from tests.storage_comparison.subject import Subject

PLAIN_JOB = NewJob("a", None)
QUEUES = ("one", "two", "dead")
WORKERS = ("ann", "bob")
DONE = Completed(b"1")


class Step:
    """Something that is done to a storage; `play` returns the answer."""

    def play(self, subject: Subject) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Enqueue(Step):
    queue: str
    job: NewJob = PLAIN_JOB

    def play(self, subject: Subject) -> Any:
        options = {f.name: getattr(self.job, f.name) for f in fields(NewJob)[2:]}
        given = {name: value for name, value in options.items() if value != getattr(PLAIN_JOB, name)}
        return subject.ask("enqueue", self.queue, self.job.id, self.job.payload, **given)


@dataclass(frozen=True)
class EnqueueMany(Step):
    queue: str
    jobs: tuple[NewJob, ...] = ()

    def play(self, subject: Subject) -> Any:
        return subject.ask("enqueue_many", self.queue, list(self.jobs))


@dataclass(frozen=True)
class Claim(Step):
    queues: tuple[str, ...]
    limit: int = 1
    worker: str = "ann"
    policy: LeasePolicy = field(default_factory=LeasePolicy)

    def play(self, subject: Subject) -> Any:
        claimed: list[Claimed] = subject.operate(
            "claim", self.queues, worker=subject.worker(self.worker), limit=self.limit, policy=self.policy
        )
        subject.runs += claimed
        return claimed


@dataclass(frozen=True)
class Raised:
    """A handler's exception, of which the worker makes an outcome."""

    kind: Literal["error", "retry", "snooze", "discard"] = "error"
    delay: float | None = None

    def outcome(self, run: Claimed) -> Outcome:
        errors = {
            "error": lambda: ValueError("boom"),
            "retry": lambda: RetryOrder(self.delay),
            "snooze": lambda: Snooze(self.delay or 0),
            "discard": lambda: Discard("useless"),
        }
        return decide(
            errors[self.kind](),
            attempts=run.attempts,
            max_attempts=run.max_attempts,
            options=run.options,
            chance=0.5,
        )


@dataclass(frozen=True)
class SettledRun:
    run: int = 0
    outcome: Outcome | Raised = DONE

    def settlement(self, run: Claimed) -> Settlement:
        outcome = self.outcome.outcome(run) if isinstance(self.outcome, Raised) else self.outcome
        return Settlement(run.lease, outcome)


@dataclass(frozen=True)
class Settle(Step):
    """End runs in one batch, each once; runs that ended before, or were reaped, are reported as lost."""

    endings: tuple[SettledRun, ...] = (SettledRun(),)

    def play(self, subject: Subject) -> Any:
        runs = [(ending, subject.run(ending.run)) for ending in self.endings]
        batch = {run.lease: ending.settlement(run) for ending, run in runs if run is not None}
        return subject.operate("settle", list(batch.values()))


@dataclass(frozen=True)
class Heartbeat(Step):
    runs: tuple[int, ...] = (0,)

    def play(self, subject: Subject) -> Any:
        found = [subject.run(run) for run in self.runs]
        leases = list(dict.fromkeys(run.lease for run in found if run is not None))
        return subject.operate("heartbeat", leases)


@dataclass(frozen=True)
class SaveCheckpoint(Step):
    run: int = 0
    value: bytes = b"1"

    def play(self, subject: Subject) -> Any:
        run = subject.run(self.run)
        return None if run is None else subject.operate("save_checkpoint", run.lease, self.value)


@dataclass(frozen=True)
class Reap(Step):
    limit: int = 1000
    stale_age: float = 0.0

    def play(self, subject: Subject) -> Any:
        return subject.operate("reap", limit=self.limit, stale_age=self.stale_age)


@dataclass(frozen=True)
class Advance(Step):
    seconds: float

    def play(self, subject: Subject) -> None:
        subject.clock.advance(self.seconds)


@dataclass(frozen=True)
class Cancel(Step):
    queue: str
    id: str
    active: bool = False

    def play(self, subject: Subject) -> Any:
        return subject.ask("cancel", self.queue, subject.real(self.id), active=self.active)


@dataclass(frozen=True)
class JobOperation(Step):
    queue: str
    id: str
    verb: Literal["retry", "release", "delete_job", "get_status", "get_attempts", "get_result"]

    def play(self, subject: Subject) -> Any:
        return subject.ask(self.verb, self.queue, subject.real(self.id))


@dataclass(frozen=True)
class Reschedule(Step):
    queue: str
    id: str
    changes: dict[str, Any] = field(default_factory=dict[str, Any])

    def play(self, subject: Subject) -> Any:
        return subject.ask("reschedule", self.queue, subject.real(self.id), **self.changes)


@dataclass(frozen=True)
class GetStatuses(Step):
    queue: str
    ids: tuple[str, ...] = ()

    def play(self, subject: Subject) -> Any:
        return subject.ask("get_statuses", self.queue, [subject.real(job_id) for job_id in self.ids])


@dataclass(frozen=True)
class Find(Step):
    """Walk the pages of `find_jobs`."""

    queue: str | None = None
    criteria: dict[str, Any] = field(default_factory=dict[str, Any])
    limit: int = 100

    def play(self, subject: Subject) -> Any:
        pages: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = subject.ask("find_jobs", self.queue, after=after, limit=self.limit, **self.criteria)
            pages.append(list(page))
            after = page.next
        return pages


@dataclass(frozen=True)
class BulkOperation(Step):
    """A bulk operation."""

    verb: Literal["retry_many", "cancel_many", "delete_many"]
    queue: str | None = None
    criteria: dict[str, Any] = field(default_factory=dict[str, Any])
    batch: int = 1000

    def play(self, subject: Subject) -> Any:
        return subject.ask(self.verb, self.queue, batch=self.batch, **self.criteria)


@dataclass(frozen=True)
class Prune(Step):
    """Prune until nothing is left to prune: which records go first is the storage's own."""

    limit: int = 1000

    def play(self, subject: Subject) -> Any:
        return sum(iter(lambda: subject.operate("prune", limit=self.limit), 0))


@dataclass(frozen=True)
class Workers(Step):
    """List the workers after they have been seen. Since when, and with which queues, is for people only."""

    def play(self, subject: Subject) -> Any:
        for worker in WORKERS:
            name = subject.worker(worker)
            subject.operate("worker_seen", Registration(f"of {name}", name, ("one",), 10.0))
        return sorted((info.id, info.running) for info in subject.ask("get_workers"))


@dataclass(frozen=True)
class WaitForWork(Claim):
    """Wait for work before claiming: a storage may say too often that there may be some, and never too seldom."""

    def play(self, subject: Subject) -> Any:
        may_be = subject.operate("wait_for_work", self.queues, 0.0)
        claimed = super().play(subject)
        return claimed, "claimed what was not announced" if claimed and not may_be else "announced"


@dataclass(frozen=True)
class Await(Step):
    """Enqueue a job, or join it, and wait for it from now on."""

    queue: str
    job: NewJob = PLAIN_JOB

    def play(self, subject: Subject) -> Any:
        return subject.result_waiter(self.queue, self.job)


@dataclass(frozen=True)
class ReadResults(Step):
    """Tell what the waiters were answered so far."""

    def play(self, subject: Subject) -> Any:
        return list(subject.answers.values())


@dataclass(frozen=True)
class Subscribe(Step):
    queue: str | None = None

    def play(self, subject: Subject) -> None:
        subject.subscribe(self.queue)


@dataclass(frozen=True)
class Events(Step):
    """Take the events that every subscriber heard since the last time."""

    def play(self, subject: Subject) -> Any:
        return subject.events()


@dataclass(frozen=True)
class Reopen(Step):
    """Close the storage, and open it again."""

    def play(self, subject: Subject) -> None:
        subject.reopen()


@dataclass(frozen=True)
class CreateQueue(Step):
    queue: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def play(self, subject: Subject) -> Any:
        return subject.ask("create_queue", self.queue, **self.options)


@dataclass(frozen=True)
class UpdateQueue(Step):
    queue: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def play(self, subject: Subject) -> Any:
        return subject.ask("update_queue", self.queue, **self.options)


@dataclass(frozen=True)
class QueueOperation(Step):
    queue: str
    verb: Literal["delete_queue", "pause_queue", "resume_queue", "get_queue", "get_blocked_keys", "get_queue_stats"]

    def play(self, subject: Subject) -> Any:
        return subject.ask(self.verb, self.queue)


@dataclass(frozen=True)
class Redrive(Step):
    queue: str
    limit: int = 1000
    to: str | None = None

    def play(self, subject: Subject) -> Any:
        return subject.ask("redrive", self.queue, limit=self.limit, to=self.to)


@dataclass(frozen=True)
class Observe(Step):
    """Count the queues' jobs, as a worker does from time to time."""

    def play(self, subject: Subject) -> Any:
        return subject.operate("observe")


@dataclass(frozen=True)
class Scenario:
    """Steps, and what plays them: storages that promise definitions or all, in blocking or async mode."""

    steps: tuple[Step, ...]
    definitions: bool = False
    mode: Literal["sync", "async"] = "sync"
