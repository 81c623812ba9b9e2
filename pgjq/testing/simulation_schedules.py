"""Schedules in the simulation: workers look, plan and tick late, twice, side by side.

Claims whose commit was lost are played here, too: the worker that asks for their jobs finds none.

A worker keeps the plan that it has made; it may apply it much later, when another worker has ticked, the schedule was
changed or is gone, or apply it again because the reply was lost. The chronicle computes the ticks for itself:

* a plan is applied if its schedule has not changed since, and then as a whole; else it changes nothing;
* each tick makes at most one job, and which ticks make one follows from `missed`, `overlap` and pauses alone;
* a schedule's next run is the first tick after the time of the plan;
* in the end a healthy worker ticks, and no tick is left behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgjq.blocking import drive
from pgjq.job import LIVE
from pgjq.schedules.plan import plan
from pgjq.schedules.schedule import Payload, change, define, resume, tick_name
from pgjq.storage.memory import MemoryStorage
from pgjq.testing.clock import ManualClock
from pgjq.testing.simulation_choices import WORKERS
from pgjq.testing.simulation_jobs import JobHistory
from pgjq.testing.simulation_losses import LossySimulation, UnansweredClaim

if TYPE_CHECKING:
    from datetime import datetime

    from pgjq.schedules.plan import Plan
    from pgjq.schedules.schedule import Missed, Overlap, Schedule
    from pgjq.storage.schedules import ScheduleOperations

SCHEDULES = 3
INTERVALS = (4, 7, 30)
MISSED: tuple[Missed, ...] = ("once", "all", "skip")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue_one")
DEADLINE = 12.0
ATTEMPTS = 2


@dataclass(slots=True, eq=False)
class ScheduleHistory:
    """The history of a schedule. Times are seconds since the start of the simulation."""

    start_at: float
    every: int
    missed: Missed
    overlap: Overlap
    next_run_at: float
    paused: bool = False
    revision: int = 0
    jobs: list[str] = field(default_factory=list[str])

    def after(self, now: float) -> float:
        """Return the first tick after a time."""
        return self.start_at + ((now - self.start_at) // self.every + 1) * self.every

    def due(self, now: float) -> list[float]:
        """Return the ticks that are due, and may make jobs."""
        ticks = list[float]()
        tick = self.next_run_at
        while tick <= now:
            ticks.append(tick)
            tick += self.every
        if self.paused:
            return []
        if self.missed == "skip":
            return [tick for tick in ticks if now - tick <= DEADLINE]
        return ticks[-1:] if self.missed == "once" else ticks


@dataclass(frozen=True)
class KeptPlan:
    """A plan that a worker has made, and what the chronicle expects of it."""

    plan: Plan
    revision: int
    ticks: list[float]
    next_run_at: float


class ScheduledSimulation(LossySimulation):
    """A history with schedules, in which replies get lost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.schedules: ScheduleOperations = self.storage.operations("sync")  # pyright: ignore[reportAttributeAccessIssue]
        self.epoch: datetime = drive(self.schedules.storage_time())
        self.plans: list[KeptPlan] = []
        self.times: dict[str, ScheduleHistory] = {}
        self.created = 0
        self.weights |= {
            self.create: 3,
            self.look: 8,
            self.apply: 7,
            self.lose_tick: 3,
            self.change: 3,
            self.remove: 1,
            self.lose_commit: 2,
        }

    def lose_commit(self) -> None:
        """Let a worker claim without getting an answer, because the claim was rolled back."""
        worker = self.chance.choice(WORKERS)
        if worker not in self.frozen:
            self.unanswered.append(UnansweredClaim(worker, self.chance.getrandbits(63), self.now))

    def create(self) -> None:
        """Create another schedule; its name is taken from then on."""
        if self.created == SCHEDULES:
            return
        name, every = f"{self.queue} s{self.created}", self.chance.choice(INTERVALS)
        missed, overlap = self.chance.choice(MISSED), self.chance.choice(OVERLAPS)
        now = drive(self.schedules.storage_time())
        values = {"every": every, "missed": missed, "overlap": overlap, "starting_deadline": DEADLINE}
        values |= {"start_at": now - timedelta(seconds=1), "max_attempts": ATTEMPTS}
        new = define(name, self.queue, Payload(b"payload", None), now, values)
        assert drive(self.schedules.put_schedule(new, revision=None))
        assert not drive(self.schedules.put_schedule(new, revision=None))
        self.created += 1
        self.times[name] = ScheduleHistory(self.now - 1, every, missed, overlap, next_run_at=self.now - 1 + every)
        self._note("create schedule", name[-2:])

    def look(self) -> None:
        """Let a worker read the schedules that are due, and plan their ticks."""
        due = drive(self.schedules.due_schedules(limit=100, poll=1.0))
        expected = {name: known for name, known in self.times.items() if known.next_run_at <= self.now}
        assert {schedule.name for schedule in due.schedules} == set(expected)
        for schedule in due.schedules:
            known = expected[schedule.name]
            assert schedule.revision == known.revision
            made = plan(schedule, due.now)
            self.plans.append(KeptPlan(made, known.revision, known.due(self.now), known.after(self.now)))
        self._note("look", sorted(name[-2:] for name in expected))

    def apply(self) -> None:
        """Apply a plan, however old it is; it may be kept, and be applied again."""
        if self.plans:
            kept = self.chance.choice(self.plans)
            if self.chance.random() < 0.8:
                self.plans.remove(kept)
            self._apply(kept)

    def lose_tick(self) -> None:
        """Apply a plan without getting an answer, and again: the second time it changes nothing."""
        if self.plans:
            kept = self.plans.pop(self.chance.randrange(len(self.plans)))
            self._apply(kept)
            assert drive(self.schedules.tick([kept.plan])) == {}

    def _apply(self, kept: KeptPlan) -> None:
        name = kept.plan.schedule.name
        known = self.times.get(name)
        done = drive(self.schedules.tick([kept.plan]))
        if known is None or known.revision != kept.revision:
            assert done == {}, f"a plan of revision {kept.revision} was applied to {known}"
            return
        made = [tick.job_id for tick in done[name] if tick.outcome == "made"]
        assert made == self._expected_jobs(name, known, kept.ticks), f"{done[name]} of {known}, {self.lives}"
        known.revision, known.next_run_at = known.revision + 1, kept.next_run_at
        self._note("tick", name[-2:], made)

    def _expected_jobs(self, name: str, known: ScheduleHistory, ticks: list[float]) -> list[str]:
        """Record the jobs that ticks must make, and return their ids."""
        made: list[str] = []
        for tick in ticks:
            if not self._overlaps(known):
                job_id = f"{name}@{tick_name(self._moment(tick))}"
                assert job_id not in self.lives, f"{job_id} was made twice"
                self.lives[job_id] = JobHistory(ATTEMPTS)
                known.jobs.append(job_id)
                made.append(job_id)
        return made

    def _overlaps(self, known: ScheduleHistory) -> bool:
        if known.overlap == "skip":
            return any(self.lives[job_id].state in LIVE for job_id in known.jobs[-1:])
        waiting = any(self.lives[job_id].state in ("queued", "failing") for job_id in known.jobs)
        return known.overlap == "queue_one" and waiting

    def change(self) -> None:
        """Pause, resume or change a schedule; a change of an older revision is refused."""
        if not self.times:
            return
        name = self.chance.choice(sorted(self.times))
        known, every = self.times[name], self.chance.choice(INTERVALS)
        schedule, now = self._read(name), drive(self.schedules.storage_time())
        match what := self.chance.choice(("pause", "resume", "every")):
            case "pause":
                new = replace(schedule, paused=True)
            case "resume":
                new = resume(schedule, now)
            case _:
                new = change(schedule, None, now, {"every": every})
        assert not drive(self.schedules.put_schedule(new, revision=known.revision + self.chance.choice((-1, 1))))
        assert drive(self.schedules.put_schedule(new, revision=known.revision))
        known.revision += 1
        known.paused = known.paused if what == "every" else what == "pause"
        if what == "resume" or (what == "every" and every != known.every):
            known.every = every if what == "every" else known.every
            known.next_run_at = known.after(self.now)
        self._note("change schedule", name[-2:], what)

    def remove(self) -> None:
        """Delete a schedule; its jobs stay."""
        if self.times:
            name = self.chance.choice(sorted(self.times))
            assert drive(self.schedules.delete_schedule(name))
            assert not drive(self.schedules.delete_schedule(name))
            del self.times[name]
            self._note("delete schedule", name[-2:])

    def finish(self) -> None:
        """Let a healthy worker tick and run everything: no tick is left behind."""
        self._wait(1)
        late = list(self.plans)
        self.look()
        for kept in self.plans[len(late) :]:
            self._apply(kept)
        for name, known in self.times.items():
            self._read(name)
            assert known.next_run_at > self.now, f"{name} was left behind: {known}"
        assert all(drive(self.schedules.tick([kept.plan])) == {} for kept in self.plans if self._is_past(kept))
        for name in self.times:
            drive(self.schedules.delete_schedule(name))
        super().finish()

    def _is_past(self, kept: KeptPlan) -> bool:
        known = self.times.get(kept.plan.schedule.name)
        return known is None or known.revision != kept.revision

    def _read(self, name: str) -> Schedule:
        """Read a schedule, and compare it with the chronicle."""
        (found,) = drive(self.schedules.schedules(name))
        known = self.times[name]
        seen = (found.revision, found.paused, found.every, found.next_run_at, found.last_job_id)
        last = known.jobs[-1] if known.jobs else None
        expected = (known.revision, known.paused, known.every, self._moment(known.next_run_at), last)
        assert seen == expected, f"{found}, not {known}"
        return found

    def _moment(self, seconds: float) -> datetime:
        return self.epoch + timedelta(seconds=seconds)


def play_scheduled(seed: int) -> list[Any]:
    """Play one seed with schedules and lost replies in memory; an error names the seed."""
    clock = ManualClock()
    try:
        return ScheduledSimulation(seed, MemoryStorage(clock=clock), clock).play()
    except Exception as error:
        error.add_note(f"seed {seed} with schedules fails; again: python -m pgjq.testing --schedules --seed {seed}")
        raise
