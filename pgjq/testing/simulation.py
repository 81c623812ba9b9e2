"""A deterministic simulation of the lease protocol, with the production code.

One seed is one history: a few workers, a few jobs, and a clock that moves only when the history says so. Workers claim,
renew, save checkpoints, finish, fail, release; they crash, and they freeze and continue with leases that may have
expired; reapers with different `stale_age` sweep; a client cancels. Every reply, and every few steps the whole visible
state, is compared with a chronicle, which is recorded from the replies alone:

* at most one lease of a job is valid, and it is the last one given;
* a write under any other lease changes nothing, and a write under the valid one succeeds;
* a job that has ended is never claimed again;
* a reaper takes overdue jobs and no others, and decides as `pgjq.lease.judge` does; no worker that counts from when it
  asked trusts a lease that a reaper has ended;
* attempts, stalls, leases, checkpoints and worker records are those of the chronicle;
* in the end a healthy worker starts, and every job that was ever enqueued has ended.

The storage decides nothing at random, and the history draws everything from its seed: a failing seed always fails.

    python -m pgjq.testing --histories 1000000
    python -m pgjq.testing --seed 4711
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgjq.blocking import drive
from pgjq.job import LIVE
from pgjq.lease import LeasePolicy, judge
from pgjq.options import JobFilter, Submission
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.storage.memory import MemoryStorage
from pgjq.testing.clock import ManualClock
from pgjq.testing.simulation_choices import JOBS, OUTCOMES, POLICIES, SUBMISSIONS, WORKERS
from pgjq.testing.simulation_jobs import HeldLease, JobHistory
from pgjq.worker.run import MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.job import JobStatus, State
    from pgjq.storage.base import Claimed, Lease, Reaped, Storage
    from pgjq.testing.clock import Clock

STEPS = 32
ROUNDS = 2
OFTEN = 3


@dataclass(eq=False)
class Simulation:
    """One seed, played on one storage. `trace` has the replies, the same on every storage."""

    seed: int
    storage: Storage
    clock: Clock
    queue: str = "simulated"
    trace: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311
        self.ops = self.storage.operations("sync")
        self.now = 0.0
        self.lives: dict[str, JobHistory] = {}
        self.in_flight: dict[str, list[HeldLease]] = {worker: [] for worker in WORKERS}
        self.frozen: set[str] = set()
        self.weights: dict[Callable[[], None], int] = {
            self.enqueue: 4,
            self.claim: 8,
            self.beat: 5,
            self.settle: 6,
            self.save: 2,
            self.crash: 2,
            self.freeze: 3,
            self.unfreeze: 3,
            self.reap: 7,
            self.cancel: 2,
            self.wait: 9,
        }

    def play(self) -> list[Any]:
        """Play the history to its end, and return the replies."""
        self.enqueue()
        self.enqueue()
        for step in self.chance.choices(list(self.weights), list(self.weights.values()), k=STEPS):
            step()
        self.finish()
        return self.trace

    def enqueue(self) -> None:
        """Enqueue another job, if the history has room for it."""
        if len(self.lives) < JOBS:
            job_id, chosen = str(len(self.lives)), self.chance.choice(SUBMISSIONS)
            drive(self.ops.enqueue(self.queue, [Submission(job_id, b"payload", chosen)]))
            self.lives[job_id] = JobHistory(chosen.max_attempts or 0)
            self._note("enqueue", job_id)

    def claim(self) -> None:
        """Let a worker claim."""
        self._claim(self.chance.choice(WORKERS), self.chance.randint(1, 2), self.chance.choice(POLICIES))

    def _claim(self, worker: str, limit: int, policy: LeasePolicy) -> list[Claimed]:
        if worker in self.frozen:
            return []
        claimed = drive(self.ops.claim([self.queue], worker=worker, limit=limit, policy=policy))
        for job in claimed:
            life = self.lives[job.lease.id]
            assert life.state in ("queued", "failing"), f"{job.lease} was claimed, but is {life.state}"
            life.start(worker, policy, self.now)
            assert (job.lease.number, job.attempts, job.checkpoint) == (life.lease, life.attempts, life.checkpoint)
            self.in_flight[worker].append(HeldLease(job.lease, self._trust(job.lease_seconds), job.lease_seconds))
        self._note("claim", worker, [(j.lease.id, j.lease.number, j.attempts, j.checkpoint) for j in claimed])
        return claimed

    def beat(self) -> None:
        """Renew the leases of a worker, and tell it which are lost or should be cancelled."""
        worker = self.chance.choice(WORKERS)
        if worker in self.frozen or not self.in_flight[worker]:
            return
        held = self.in_flight[worker]
        pulse = drive(self.ops.heartbeat([h.lease for h in held]))
        assert {h.lease[:3] for h in held if not self._is_valid(h.lease)} == {lease[:3] for lease in pulse.lost}
        asked = {h.lease[:3] for h in held if self._is_valid(h.lease) and self.lives[h.lease.id].cancel_requested}
        assert asked == {lease[:3] for lease in pulse.cancel_requested}
        self.in_flight[worker] = [h for h in held if self._is_valid(h.lease)]
        for h in self.in_flight[worker]:
            self.lives[h.lease.id].renewed_at = self.now
            h.trusted_until = self._trust(h.seconds)
        self._note("beat", worker, len(pulse.lost), len(pulse.cancel_requested))

    def settle(self) -> None:
        """End some of a worker's runs in one batch, whether or not their leases are still valid."""
        worker = self.chance.choice(WORKERS)
        if worker in self.frozen or not self.in_flight[worker]:
            return
        ending = self.chance.sample(self.in_flight[worker], self.chance.randint(1, len(self.in_flight[worker])))
        self.in_flight[worker] = [h for h in self.in_flight[worker] if h not in ending]
        self._settle([Settlement(h.lease, self.chance.choice(OUTCOMES)) for h in ending])

    def _settle(self, settlements: list[Settlement]) -> None:
        expected = [self._ended(s) for s in settlements]
        answers = drive(self.ops.settle(settlements))
        assert [a.state for a in answers] == expected, f"settled {settlements} as {answers}, not {expected}"
        self._note(
            "settle", [(s.lease.id, s.lease.number, state) for s, state in zip(settlements, expected, strict=True)]
        )

    def _ended(self, settlement: Settlement) -> State | None:
        """Record the state that a settlement must lead to."""
        if not self._is_valid(settlement.lease):
            return None
        return self.lives[settlement.lease.id].end(settlement.outcome)

    def save(self) -> None:
        """Save a checkpoint under a lease that a worker believes to hold."""
        worker = self.chance.choice(WORKERS)
        if worker in self.frozen or not self.in_flight[worker]:
            return
        lease, value = self.chance.choice(self.in_flight[worker]).lease, b"page %d" % self.chance.randrange(100)
        held = self._is_valid(lease)
        assert drive(self.ops.save_checkpoint(lease, value)) == held
        if held:
            self.lives[lease.id].checkpoint = value
        self._note("save", lease.id, lease.number, held)

    def crash(self) -> None:
        """Lose the state of a worker; its name comes back without in-flight runs."""
        worker = self.chance.choice(WORKERS)
        self.in_flight[worker] = []
        self.frozen.discard(worker)

    def freeze(self) -> None:
        """Freeze a worker: it keeps its leases and does nothing."""
        self.frozen.add(self.chance.choice(WORKERS))

    def unfreeze(self) -> None:
        """Unfreeze a worker, which continues with the leases it believes to hold."""
        if self.frozen:
            self.frozen.discard(self.chance.choice(sorted(self.frozen)))

    def reap(self) -> None:
        """Let a reaper sweep, patient or not."""
        self._reap(self.chance.choice((0.0, 0.0, 3.0)), self.chance.choice((1, 100)))

    def _reap(self, patience: float, limit: int) -> None:
        overdue = {job_id for job_id, life in self.lives.items() if life.is_overdue(self.now, patience)}
        taken = drive(self.ops.reap(limit=limit, stale_age=patience))
        ids = {job.id for job in taken}
        assert len(ids) == len(taken) == min(limit, len(overdue)), f"took {taken}, overdue were {overdue}"
        assert ids <= overdue, f"took {ids}, overdue were {overdue}"
        for job in taken:
            self._take_back(job)
        self._note("reap", sorted((j.id, j.count, j.action, j.reason, j.worker) for j in taken))

    def _take_back(self, job: Reaped) -> None:
        life = self.lives[job.id]
        believers = [
            h for held in self.in_flight.values() for h in held if self._is_valid(h.lease) and h.lease.id == job.id
        ]
        assert all(h.trusted_until is None or h.trusted_until <= self.now for h in believers) or job.reason == "expired"
        assert job.action == judge(life.stall), f"{job} but {life}"
        assert job.reason == ("expired" if life.expire_at is not None and life.expire_at <= self.now else "lease")
        life.take_back(job.action)
        assert (job.count, job.attempts, job.worker) == (life.stalled, life.attempts, life.worker)

    def cancel(self) -> None:
        """Cancel a job, running ones as well or not."""
        if not self.lives:
            return
        job_id, active = self.chance.choice(sorted(self.lives)), self.chance.random() < 0.7
        life = self.lives[job_id]
        status = drive(self.ops.cancel(self.queue, job_id, active=active)).status
        if life.state in ("queued", "failing"):
            life.state = "cancelled"
        elif life.state == "processing":
            life.cancel_requested = life.cancel_requested or active
        assert status == life.state
        self._note("cancel", job_id, status)

    def wait(self) -> None:
        """Move the clock."""
        self._wait(self.chance.choice((1, 2, 5, 10, 15)))

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.clock.advance(seconds)

    def _check(self) -> None:
        """Compare the storage with the chronicle."""
        found, _ = drive(self.ops.find(JobFilter(queue=self.queue)))
        assert [status.id for status in found] == list(self.lives), "a job was lost, or there is one too many"
        for status in found:
            self._check_one(status, self.lives[status.id])

    def _check_one(self, status: JobStatus, life: JobHistory) -> None:
        seen = (status.state, status.attempts, status.stalled, status.lease, status.stalled_on)
        assert seen == (life.state, life.attempts, life.stalled, life.lease, life.stalled_on), f"{status}, not {life}"
        if life.state == "processing":
            assert status.worker == life.worker

    def finish(self) -> None:
        """Replace all workers by a healthy one: every job ends, and late writes change nothing."""
        zombies = [h for held in self.in_flight.values() for h in held]
        self.in_flight = {worker: [] for worker in WORKERS}
        self.frozen.clear()
        for _ in range(ROUNDS):
            self._wait(30)
            self._reap(0.0, 1000)
            claimed = self._claim("ann", 1000, POLICIES[0])
            self._settle([Settlement(job.lease, Completed(b"done")) for job in claimed])
            self.in_flight["ann"] = []
        assert not any(life.state in LIVE for life in self.lives.values()), f"a job never ends: {self.lives}"
        assert not any(self._is_valid(h.lease) for h in zombies)
        self._settle([Settlement(h.lease, Completed(b"late")) for h in zombies])
        self._check()

    def _is_valid(self, lease: Lease) -> bool:
        return self.lives[lease.id].is_held_by(lease)

    def _trust(self, seconds: float | None) -> float | None:
        return None if seconds is None else self.now + seconds * (1 - MARGIN)

    def _note(self, *words: Any) -> None:
        """Record a call and its reply; every few steps, check all invariants."""
        self.trace.append((self.now, *words))
        if len(self.trace) % OFTEN == 0:
            self._check()


def play(seed: int, memory: type[MemoryStorage] = MemoryStorage) -> list[Any]:
    """Play one seed in memory; an error names the seed."""
    clock = ManualClock()
    try:
        return Simulation(seed, memory(clock=clock), clock).play()
    except Exception as error:
        error.add_note(f"seed {seed} fails; again: python -m pgjq.testing --seed {seed}")
        raise


def play_all(seeds: Sequence[int], memory: type[MemoryStorage] = MemoryStorage) -> int:
    """Play seeds in memory, until one fails; return their number."""
    for seed in seeds:
        play(seed, memory)
    return len(seeds)
