"""A process that reads the journal later has the same state as the process that wrote it."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import FileStorage, JobError, LeasePolicy, NewJob, PolicyError, QueueNotFoundError
from pgjq.blocking import drive
from pgjq.definition import define
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.policy import POLICIES
from pgjq.storage.base import Settlement
from pgjq.storage.model.record import Record
from pgjq.testing import ManualClock
from pgjq.testing.simulation import Simulation, play

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 60
QUEUES = ["one", "two\n€"]
KEPT = [f.name for f in fields(Record) if f.name not in ("settings", "ready")]


class JobHistory:
    """Random operations by two storages on one directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.clock = ManualClock()
        self.directory = directory
        self.storages = [FileStorage(directory, clock=self.clock) for _ in range(2)]
        self.held: list[Any] = []
        for queue in QUEUES:
            policy = self.chance.choice(POLICIES)
            self.allowed(self.ops.create_queue(queue, define(queue, {"policy": policy})))

    @property
    def ops(self) -> Any:
        return self.chance.choice(self.storages).operations("sync")

    def step(self) -> None:
        verbs = [self.enqueue, self.enqueue, self.claim, self.claim, self.settle, self.settle, self.beat, self.manage]
        verbs += [self.administrate]
        self.chance.choice(verbs)()
        if self.chance.random() < 0.3:
            self.clock.advance(self.chance.choice([0.1, 5, 40, 4000, 800_000, -20]))

    def enqueue(self) -> None:
        usual = NewJob(None, None)
        special = NewJob(
            None,
            None,
            priority=self.chance.randrange(-3, 4),
            delay=self.chance.choice([None, 0, 7.5]),
            singleton_key=self.chance.choice([None, "k"]),
            max_attempts=self.chance.choice([None, 1, 9]),
            retry_delay=self.chance.choice([None, 0.5]),
            result_ttl=self.chance.choice([None, 3]),
            singleton_seconds=self.chance.choice([None, None, 60]),
            dead_letter=self.chance.choice([None, QUEUES[0]]),
        )
        payload = self.chance.choice([b"", b'{"a": "\xc3\xbc"}', b"\xff\x00\n", b"\r\n\x1e\xe2\x80\xa8"])
        ids = self.chance.choices("abcdefgh", k=3)
        jobs = [Submission(i, payload, settings(self.chance.choice([usual, special]))) for i in ids]
        self.allowed(self.ops.enqueue(self.chance.choice(QUEUES), jobs))

    def claim(self) -> None:
        policy = LeasePolicy(lease=30, heartbeat=10, max_stalled=self.chance.choice([None, 1]))
        self.held += drive(self.ops.claim(QUEUES, worker="ann", limit=2, policy=policy))

    def settle(self) -> None:
        error = JobError("E", "text \udcff \n", None)
        outcomes = [Completed(b"\xfe"), Completed(None), Failed(error), Failing(error, 3), Released(), Snoozed(2)]
        taken = [self.held.pop() for _ in range(min(2, len(self.held)))]
        outcome = self.chance.choice([*outcomes, Cancelled()])
        drive(self.ops.settle([Settlement(job.lease, outcome) for job in taken]))

    def beat(self) -> None:
        drive(self.ops.heartbeat([job.lease for job in self.held]))
        for job in self.held[:1]:
            drive(self.ops.save_checkpoint(job.lease, b"\x80"))
        drive(self.ops.reap(limit=1))

    def manage(self) -> None:
        queue, job_id = self.chance.choice(QUEUES), self.chance.choice("abcdefgh")
        call = self.chance.choice(["cancel", "retry", "delete", "prune"])
        match call:
            case "prune":
                drive(self.ops.prune(limit=2))
            case "delete":
                drive(self.ops.delete(queue, [job_id]))
            case "cancel":
                drive(self.ops.cancel(queue, job_id, active=True))
            case _:
                self.allowed(self.ops.retry(queue, job_id))

    def administrate(self) -> None:
        queue, ops = self.chance.choice(QUEUES), self.ops
        policy, size = self.chance.choice(POLICIES), self.chance.choice([None, 1])
        call = self.chance.choice(["create", "update", "update", "delete", "pause", "redrive", "observe", "observe"])
        match call:
            case "create":
                options = {"policy": policy, "retry_limit": self.chance.choice([None, 0])}
                self.allowed(ops.create_queue(queue, define(queue, options)))
            case "update":
                letters = self.chance.choice([None, QUEUES[0]])
                self.allowed(ops.update_queue(QUEUES[1], {"dead_letter": letters, "warning_queue_size": size}))
            case "delete":
                self.allowed(ops.delete_queue(queue))
            case "pause":
                self.allowed(ops.pause(queue, paused=self.chance.random() < 0.3))
            case "redrive":
                self.allowed(ops.redrive(queue, limit=2))
            case _:
                drive(ops.observe())

    def allowed(self, call: Any) -> None:
        """Do what may be refused."""
        with suppress(PolicyError, QueueNotFoundError):
            drive(call)

    def close(self) -> None:
        for storage in self.storages:
            storage.close()


def known(storage: FileStorage) -> Any:
    """Everything that a process knows of the jobs, brought up to date."""
    drive(storage.operations("sync").stats("one"))
    jobs = storage.replica._jobs
    records = {seq: [getattr(r, name) for name in KEPT] for seq, r in jobs.records.items()}
    ids = {key: r.seq for key, r in jobs.by_id.items()}
    slots = {slot: r.seq for slot, r in jobs.slots.items()}
    return records, ids, set(jobs.processing), jobs.last_seq, jobs.queues, slots


def turns(storage: FileStorage) -> Any:
    """Whose turn it is for each queue and key."""
    drive(storage.operations("sync").stats("one"))
    jobs = storage.replica._jobs
    heaps = {queue: jobs.claimable(queue) for queue in jobs.queues}
    firsts = {queue: None if heap is None else heap.first() for queue, heap in heaps.items()}
    kept = {
        queue: {key: keys.next_claimable(key) for key in (None, "k")} for queue in QUEUES if (keys := jobs.keys(queue))
    }
    return [
        {queue: r and r.seq for queue, r in firsts.items()},
        {queue: {key: r and r.seq for key, r in lines.items()} for queue, lines in kept.items()},
    ]


@pytest.mark.parametrize("seed", range(20))
def test_everybody_knows_the_same(memory_disk: Path, seed: int) -> None:
    life = JobHistory(memory_disk / "jobs", seed)
    for _ in range(STEPS):
        life.step()
    expected = known(life.storages[0])
    assert known(life.storages[1]) == expected
    late = FileStorage(memory_disk / "jobs", clock=life.clock)
    assert known(late) == expected
    with late.replica._mutex:
        late.replica._rewrite()
    assert known(late) == known(life.storages[0]) == expected
    life.clock.advance(10_000)  # Everything is due, also where the clock was set back before.
    assert turns(late) == turns(life.storages[0])
    policy = LeasePolicy()
    order = drive(late.operations("sync").claim(QUEUES, worker="bob", limit=100, policy=policy))
    assert all(drive(life.ops.claim(QUEUES, worker="bob", limit=100, policy=policy)) == [] for _ in range(2))
    assert {job.lease.key for job in order} <= set(expected[0])
    late.close()
    life.close()


@pytest.mark.parametrize("seed", range(15))
def test_the_same_seeds_have_the_same_answers_as_in_memory(memory_disk: Path, seed: int) -> None:
    clock = ManualClock()
    storage = FileStorage(memory_disk / "jobs", clock=clock)
    assert Simulation(seed, storage, clock).play() == play(seed)
    storage.close()
