"""What the screen of `pgjq top` shows, and what each key does to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from pgjq.storage.inspection import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.doctor import Finding
    from pgjq.job import WorkerInfo
    from pgjq.storage.inspection import FoundJob, QueueOverview

View = Literal["queues", "jobs", "failures", "workers", "doctor"]
ActionName = Literal["pause", "resume", "retry", "cancel"]

VIEWS: Final[dict[str, View]] = {"1": "queues", "f": "failures", "w": "workers", "d": "doctor"}
MOVES: Final = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page up": -10,
    "page down": 10,
    "home": -1_000_000,
    "end": 1_000_000,
}
TAKEN: Final = {"retry": ("failed", "cancelled"), "cancel": ("queued", "failing", "processing")}


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do with a queue or with a job, once it is confirmed."""

    name: ActionName
    queue: str
    job_id: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {'queue' if self.job_id is None else f'job {self.job_id} of'} {self.queue}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read last."""

    totals: Totals = field(default_factory=Totals)
    queues: Sequence[QueueOverview] = ()
    workers: Sequence[WorkerInfo] = ()
    findings: Sequence[Finding] = ()
    jobs: Sequence[FoundJob] = ()
    problem: str | None = None
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """The state of the screen. `asked` waits for y or n; `wanted` is confirmed, and to be done."""

    view: View = "queues"
    queue: str | None = None
    selected: int = 0
    facts: Facts = field(default_factory=Facts)
    asked: Action | None = None
    wanted: Action | None = None
    message: str = ""
    is_over: bool = False

    @property
    def rows(self) -> Sequence[QueueOverview] | Sequence[FoundJob] | Sequence[WorkerInfo] | Sequence[Finding]:
        """The rows of the view's table."""
        match self.view:
            case "queues":
                return self.facts.queues
            case "jobs" | "failures":
                return self.facts.jobs
            case "workers":
                return self.facts.workers
            case "doctor":
                return self.facts.findings

    @property
    def chosen_queue(self) -> QueueOverview | None:
        """The selected queue."""
        return self.facts.queues[self.selected] if self.view == "queues" and self.rows else None

    @property
    def chosen_job(self) -> FoundJob | None:
        """The selected job."""
        return self.facts.jobs[self.selected] if self.view in ("jobs", "failures") and self.rows else None


def show(screen: Screen, facts: Facts) -> Screen:
    """Take what was read; the selection stays on a row that exists."""
    return _kept(replace(screen, facts=facts))


def press(screen: Screen, key: str) -> Screen:
    """Return the screen after a key."""
    if screen.asked is not None:
        wanted = screen.asked if key == "y" else None
        return replace(screen, asked=None, wanted=wanted, message="" if wanted else "not done")
    screen = replace(screen, message="", is_over=key in ("q", "ctrl-c", "ctrl-d"))
    if key in MOVES:
        return _kept(replace(screen, selected=screen.selected + MOVES[key]))
    if key in VIEWS:
        return _go(screen, VIEWS[key])
    if key in ("escape", "backspace", "left"):
        return _go(screen, "queues")
    if key in ("enter", "right") and (queue := screen.chosen_queue) is not None:
        return _go(screen, "jobs", queue.name)
    return _ask(screen, key)


def _go(screen: Screen, view: View, queue: str | None = None) -> Screen:
    if (view, queue) == (screen.view, screen.queue):
        return screen
    facts = replace(screen.facts, jobs=(), is_read=False)
    return replace(screen, view=view, queue=queue, selected=0, facts=facts)


def _ask(screen: Screen, key: str) -> Screen:
    if key == "p":
        if (queue := screen.chosen_queue) is None:
            return replace(screen, message="p pauses or resumes the selected queue: press 1 for the queues")
        return replace(screen, asked=Action("resume" if queue.paused else "pause", queue.name))
    if key in ("r", "c"):
        name: ActionName = "retry" if key == "r" else "cancel"
        if (job := screen.chosen_job) is None:
            return replace(screen, message=f"{key} is for a job: press enter on a queue, or f for the failures")
        if job.status.state not in TAKEN[name]:
            return replace(screen, message=f"{name} is for jobs that are {' or '.join(TAKEN[name])}")
        return replace(screen, asked=Action(name, job.status.queue, job.status.id))
    return screen


def _kept(screen: Screen) -> Screen:
    return replace(screen, selected=max(0, min(screen.selected, len(screen.rows) - 1)))
