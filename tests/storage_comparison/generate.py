"""A random scenario for each seed, told while it is played in memory: so most steps find something to do.

Everything is drawn from few values, so that jobs meet: three queues, four ids, two keys, times that are multiples of
each other. Delays are without chance: a backoff whose ceiling is 1 second is the same on every storage.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgjq.job import STATES, JobError, NewJob
from pgjq.lease import LeasePolicy
from pgjq.options import JobFilter
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.policy import POLICIES
from pgjq.testing.clock import START
from tests.storage_comparison import steps
from tests.storage_comparison.normalize import plain
from tests.storage_comparison.steps import QUEUES, Raised, Scenario, SettledRun
from tests.storage_comparison.subject import MemorySubject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.job import JobStatus, State
    from tests.storage_comparison.steps import Step

IDS = ("a", "b", "c", "d")
KEYS = ("k", "l")
STEPS = (8, 40)
BOOM = JobError("Boom", "boom", "where")
OUTCOMES = (
    *(Completed(b"1"), Completed(b'"x"'), Completed(None), Failed(BOOM), Failed(BOOM)),
    *(Failing(BOOM), Failing(BOOM, 5.0), Released(), Released(), Snoozed(5.0), Snoozed(0.0), Cancelled()),
    *(
        Raised(),
        Raised(),
        Raised("retry"),
        Raised("retry", 5.0),
        Raised("snooze", 3.0),
        Raised("discard"),
    ),
)
DEFINITE = (Completed(b"1"), Completed(None), Cancelled())
LEASES = (
    *(LeasePolicy(), LeasePolicy(lease=10.0, heartbeat=5.0), LeasePolicy(lease=10.0, heartbeat=5.0, expire=20.0)),
    *(LeasePolicy(lease=10.0, heartbeat=None, max_stalled=0), LeasePolicy(lease=None, heartbeat=None, expire=20.0)),
    *(LeasePolicy(lease=30.0, max_stalled=1, reap_exhausted="requeue"), LeasePolicy.visibility(10.0)),
)
JOB_OPTIONS: dict[str, tuple[Any, ...]] = {
    "priority": (-1, 1, 2),
    "delay": (0, 5, 60, timedelta(seconds=10)),
    "run_at": tuple(START + timedelta(seconds=s) for s in (-100, 0, 10, 60, 1000)),
    "max_attempts": (1, 1, 2, 4),
    "retry_limit": (0, 1),
    "result_ttl": (1, 30, 1000),
    "on_failed": ("duplicate",),
    "expire_in_seconds": (8, 50),
    "heartbeat_seconds": (10, 30),
    "retention_seconds": (1, 40),
    "delete_after_seconds": (0, 5, 50),
}
RETRIES: tuple[dict[str, Any], ...] = (
    {"retry_delay": 0},
    {"retry_delay": 5},
    {"retry_delay": 10, "retry_backoff": False, "retry_delay_max": 3},
    {"retry_delay": 7, "retry_backoff": True, "retry_delay_max": 1},
    {"retry_backoff": True, "retry_delay_max": 1},
)
SLOTS: tuple[dict[str, Any], ...] = (
    {"singleton_seconds": 60},
    {"singleton_seconds": 10, "singleton_next_slot": True},
    {"debounce": 30},
)
QUEUE_OPTIONS: dict[str, tuple[Any, ...]] = {
    "retry_limit": (0, 1, 3),
    "heartbeat_seconds": (12,),
    "expire_in_seconds": (8, 100),
    "retention_seconds": (2, 35),
    "delete_after_seconds": (0, 6, 45),
    "dead_letter": ("dead", "dead", "two", "one"),
    "warning_queue_size": (1, 2),
}


def scenario(seed: int) -> Scenario:
    """Tell the scenario of a seed."""
    with MemorySubject() as memory:
        return _Generator(random.Random(seed), memory).generate()  # noqa: S311


class _Generator:
    """Tells a scenario while it is played in memory, so that most steps find something to do."""

    def __init__(self, chance: random.Random, memory: MemorySubject) -> None:
        self.chance = chance
        self.memory = memory
        self.definitions = self._likely(0.6)

    def generate(self) -> Scenario:
        mode = self._one_of(("sync", "sync", "async"))
        self.memory.start("sync")
        self._read_state()
        taken = [self._played(self._create_queue(queue)) for queue in self._first_queues()]
        for _ in range(self.chance.randint(*STEPS)):
            makers, weights = zip(*self._weights(), strict=True)
            (make,) = self.chance.choices(makers, weights)
            taken.append(self._played(make()))
        self.memory.end()
        return Scenario((*taken, steps.Events(), steps.ReadResults()), definitions=self.definitions, mode=mode)

    def _first_queues(self) -> list[str]:
        """Create most queues, the one for dead letters first."""
        return [queue for queue in reversed(QUEUES) if self.definitions and self._likely(0.8)]

    def _played(self, step: Step) -> Step:
        """Play a step, and look at what there is now."""
        plain(self.memory.play(step), self.memory)
        self._read_state()
        return step

    def _read_state(self) -> None:
        self.now = self.memory.clock()
        found, _ = self.memory.operate("find", JobFilter(limit=1000))
        self.jobs: list[JobStatus] = sorted(found, key=lambda job: QUEUES.index(job.queue))
        held = {(job.queue, job.id, job.lease) for job in self.jobs if job.state == "processing"}
        self.held = [n for n, run in enumerate(reversed(self.memory.runs)) if run.lease[:3] in held]
        self.letters = [job.queue for job in self.jobs if job.source is not None and job.state in ("queued", "failing")]

    def _weights(self) -> list[tuple[Callable[[], Step], int]]:
        is_due = any(job.run_at is not None and job.run_at <= self.now for job in self._in("queued", "failing"))
        is_late = any(job.locked_until is not None and job.locked_until <= self.now for job in self.jobs)
        has_ended = bool(self._in("failed", "cancelled"))
        common = [
            (self._enqueue, 12 if len(self.jobs) < 6 else 5),
            (self._enqueue_many, 4),
            (self._claim, 16 if is_due else 2),
            (self._settle, 14 if self.held else 1),
            (self._heartbeat, 3 if self.held else 0),
            (self._save_checkpoint, 3 if self.held else 0),
            (self._reap, 14 if is_late else 1),
            (self._advance, 12),
            (self._cancel, 5 if self.jobs else 1),
            (self._of_one_job, 10 if has_ended else 4),
            (self._reschedule, 4 if self._in("queued", "failing") else 1),
            (self._release, 3 if self._in("processing") else 1),
            (self._get_statuses, 1),
            (self._find, 1),
            (self._many, 5 if has_ended else 2),
            (self._prune, 4),
            (self._await, 1),
            (self._wait_for_work, 2),
            (steps.Workers, 1),
            (steps.ReadResults, 1),
            (self._subscribe, 1),
            (steps.Events, 1),
            (steps.Reopen, 1),
        ]
        return common + (self._weights_of_definitions() if self.definitions else [])

    def _weights_of_definitions(self) -> list[tuple[Callable[[], Step], int]]:
        return [
            (self._create_queue, 2),
            (self._update_queue, 3),
            (self._of_one_queue, 4),
            (self._redrive, 8 if self.letters else 1),
            (steps.Observe, 2),
        ]

    def _in(self, *states: State) -> list[JobStatus]:
        return [job for job in self.jobs if job.state in states]

    def _likely(self, share: float) -> bool:
        return self.chance.random() < share

    def _one_of(self, values: Sequence[Any]) -> Any:
        return self.chance.choice(values)

    def _some(self, options: dict[str, tuple[Any, ...]], share: float) -> dict[str, Any]:
        return {name: self._one_of(values) for name, values in options.items() if self._likely(share)}

    def _queue(self) -> str:
        return self.chance.choices(QUEUES, (6, 3, 1))[0]

    def _job(self, *states: State) -> tuple[str, str]:
        """Name a job: mostly one that there is, in one of these states."""
        there = self._in(*states) or self.jobs
        if there and self._likely(0.85):
            job = self._one_of(there)
            return job.queue, self.memory.plain(job.id)
        return self._queue(), self._one_of((*IDS, *IDS, "made 0", "made 1"))

    def _runs(self, count: int) -> tuple[int, ...]:
        """Name runs: mostly such as still hold their jobs."""
        drawn = [self._one_of(self.held if self.held and self._likely(0.8) else range(6)) for _ in range(count)]
        return tuple(dict.fromkeys(drawn))

    def _new_job(self, job_id: str | None) -> NewJob:
        options = self._some(JOB_OPTIONS, 0.12)
        if "run_at" in options:
            options.pop("delay", None)
        if "retry_limit" in options:
            options.pop("max_attempts", None)
        if self._likely(0.3):
            options |= self._one_of(RETRIES)
        if self._likely(0.7 if self.definitions else 0.2):
            options["singleton_key"] = self._one_of(KEYS)
        if self.definitions and self._likely(0.15):
            options |= self._one_of(SLOTS)
        if self.definitions and self._likely(0.15):
            options["dead_letter"] = self._one_of(("dead", "dead", "two"))
        return NewJob(job_id, self._one_of((None, 1)), **options)

    def _enqueue(self) -> Step:
        return steps.Enqueue(self._queue(), self._new_job(self._one_of((*IDS, *IDS, None))))

    def _enqueue_many(self) -> Step:
        ids = [self._one_of((*IDS, *IDS, None)) for _ in range(self.chance.randint(1, 4))]
        return steps.EnqueueMany(self._queue(), tuple(self._new_job(job_id) for job_id in ids))

    def _claim(self) -> Step:
        due = [job.queue for job in self._in("queued", "failing") if job.run_at is not None and job.run_at <= self.now]
        queues = self._one_of(((self._one_of(due or QUEUES),), (self._queue(),), QUEUES, ("two", "one")))
        return steps.Claim(queues, self.chance.randint(1, 3), self._one_of(steps.WORKERS), self._one_of(LEASES))

    def _settle(self) -> Step:
        """End some runs. Of one batch, one job makes a dead letter: the order of several is the storage's own."""
        first, *others = self._runs(self._one_of((1, 1, 1, 2, 3)))
        rest = DEFINITE if self.definitions else OUTCOMES
        endings = [SettledRun(first, self._one_of(OUTCOMES)), *(SettledRun(run, self._one_of(rest)) for run in others)]
        return steps.Settle(tuple(endings))

    def _heartbeat(self) -> Step:
        return steps.Heartbeat(self._runs(2))

    def _save_checkpoint(self) -> Step:
        return steps.SaveCheckpoint(*self._runs(1), self._one_of((b"1", b"2")))

    def _reap(self) -> Step:
        return steps.Reap(self._one_of((1, 2, 1000, 1000)), self._one_of((0.0, 0.0, 5.0)))

    def _advance(self) -> Step:
        """Mostly go on to a moment at which something is due."""
        moments = [time for job in self.jobs for time in (job.run_at, job.locked_until) if time and time > self.now]
        if moments and self._likely(0.6):
            return steps.Advance((self._one_of(moments) - self.now).total_seconds())
        return steps.Advance(self.chance.choices((0.5, 1, 5, 10, 31, 60, 1000, 700_000), (2, 4, 8, 8, 8, 4, 2, 1))[0])

    def _cancel(self) -> Step:
        return steps.Cancel(*self._job("queued", "failing", "processing"), active=self._likely(0.6))

    def _of_one_job(self) -> Step:
        verb = self._one_of(("retry", "retry", "retry", "delete_job", "get_status", "get_result", "get_attempts"))
        states = ("completed",) if verb == "get_result" else ("failed", "cancelled")
        return steps.JobOperation(*self._job(*states), verb)

    def _release(self) -> Step:
        return steps.JobOperation(*self._job("processing"), "release")

    def _reschedule(self) -> Step:
        moments = tuple(self.now + timedelta(seconds=s) for s in (-5, 0, 5, 60))
        changes = self._some({"run_at": moments, "priority": (-3, 0, 2)}, 0.6)
        return steps.Reschedule(*self._job("queued", "failing"), changes)

    def _get_statuses(self) -> Step:
        return steps.GetStatuses(self._queue(), tuple(self.chance.choices(IDS, k=3)))

    def _criteria(self) -> dict[str, Any]:
        since, until = (tuple(self.now + timedelta(seconds=s) for s in by) for by in ((-1000, -10, 0), (-5, 0, 1)))
        among = {"state": STATES, "singleton_key": KEYS, "created_before": until, "created_after": since}
        return self._some(among, 0.2)

    def _find(self) -> Step:
        return steps.Find(self._one_of((None, self._queue())), self._criteria(), self._one_of((1, 2, 100)))

    def _many(self) -> Step:
        verb = self._one_of(("retry_many", "retry_many", "cancel_many", "cancel_many", "delete_many"))
        queue = self._one_of((None, self._queue(), self._job("failed")[0]))
        criteria = self._criteria()
        if verb == "retry_many" and self._likely(0.7):
            criteria["state"] = self._one_of(("failed", "cancelled"))
        return steps.BulkOperation(verb, queue, criteria, self._one_of((1, 2, 1000)))

    def _prune(self) -> Step:
        return steps.Prune(self._one_of((1, 1000, 1000, 1000)))

    def _await(self) -> Step:
        """Await a job; what the client would refuse, it is not asked."""
        queue, job = self._queue(), self._new_job(self._one_of(IDS))
        return steps.Await(queue, replace(job, dead_letter=None) if job.dead_letter == queue else job)

    def _wait_for_work(self) -> Step:
        return steps.WaitForWork(self._one_of(((self._queue(),), QUEUES)))

    def _subscribe(self) -> Step:
        return steps.Subscribe(self._one_of((None, None, "one")))

    def _create_queue(self, queue: str | None = None) -> Step:
        queue = queue or self._queue()
        options = self._queue_options(queue, 0.15)
        if queue != "dead" and self._likely(0.3):
            options["dead_letter"] = "dead"
        if self._likely(0.7):
            options["policy"] = self._one_of(POLICIES)
        if self._likely(0.03):
            options["partition"] = True
        return steps.CreateQueue(queue, options)

    def _queue_options(self, queue: str, share: float) -> dict[str, Any]:
        options = self._some(QUEUE_OPTIONS, share)
        if self._likely(share):
            options |= self._one_of(RETRIES)
        if options.get("dead_letter") == queue:
            del options["dead_letter"]
        return options

    def _update_queue(self) -> Step:
        queue = self._queue()
        options = self._queue_options(queue, 0.2)
        taken_back = self._likely(0.3)
        return steps.UpdateQueue(queue, dict.fromkeys(options) if taken_back else options)

    def _of_one_queue(self) -> Step:
        verbs = ("pause_queue", "resume_queue", "get_queue", "get_blocked_keys", "get_queue_stats", "delete_queue")
        return steps.QueueOperation(self._queue(), self._one_of(verbs))

    def _redrive(self) -> Step:
        return steps.Redrive(
            self._one_of(self.letters or QUEUES), self._one_of((1, 1000)), self._one_of((None, None, "one"))
        )
