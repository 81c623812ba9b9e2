"""A call of a task: its checked arguments as a payload, and the options to enqueue it with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.job import NewJob

if TYPE_CHECKING:
    from pgjq.options import Headers, Settings
    from pgjq.serde import Serde
    from pgjq.tasks.task import TaskBase

    Parts = tuple[str | None, Any, Settings, Headers | None, str | None]


class Call:
    """A task with arguments, for `enqueue_many`: `receipt.call(7)`. Immutable by convention."""

    __slots__ = ("id", "payload", "singleton_key", "task")

    def __init__(self, task: TaskBase[Any, Any], payload: Any, id: str | None, singleton_key: str | None) -> None:
        self.task = task
        self.payload: Any = payload
        self.id = id
        self.singleton_key = singleton_key

    @property
    def queue(self) -> str:
        """The name of the task's queue."""
        return self.task.queue.name

    def parts(self, defaults: Settings) -> Parts:
        """Return the id, the payload, the resolved settings, the headers and the task's name."""
        task = self.task
        return self.id, self.payload, task.settings(defaults, self.singleton_key), task.headers, task.name

    def new_job(self) -> NewJob:
        """Return this call as a job for middleware."""
        return TaskJob(self.id, self.payload, **self.task.job_options(self.singleton_key))

    @property
    def options(self) -> dict[str, Any]:
        """The options of its job, as `NewJob` takes them."""
        return self.task.job_options(self.singleton_key)

    def explain(self, serde: Serde) -> None:
        """Raise a ValidationError that names the argument that the serde cannot write, if any."""
        self.task.arguments.explain(self.payload["args"], self.payload["kwargs"], serde)

    def __repr__(self) -> str:
        args = [repr(value) for value in self.payload["args"]]
        kwargs = [f"{name}={value!r}" for name, value in self.payload["kwargs"].items()]
        return f"<Call {self.task.name}({', '.join([*args, *kwargs])}) in queue {self.queue!r}>"


class TaskJob(NewJob):
    """A job of a task, retried with backoff unless it or its queue's definition says otherwise."""

    __slots__ = ()

    backoff_by_default = True
