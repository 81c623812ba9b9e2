"""A job as the asserts and captures of a test see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pgjq.job import JobStatus


@dataclass(frozen=True)
class EnqueuedJob:
    """A job that was enqueued; `status` is its whole record at the time of the read.

    Redis forgets the payload of a job that has ended: there it is None.
    """

    status: JobStatus
    payload: Any

    @property
    def id(self) -> str:
        """The job's id."""
        return self.status.id

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.status.queue

    @property
    def task(self) -> str | None:
        """The name of the task, if it is the job of one."""
        return self.status.task

    @property
    def args(self) -> list[Any]:
        """The positional arguments of its task, as they are stored."""
        return self._part("args", [])

    @property
    def kwargs(self) -> dict[str, Any]:
        """The named arguments of its task, as they are stored."""
        return self._part("kwargs", {})

    @property
    def state(self) -> str:
        """The job's state."""
        return self.status.state

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self.status.priority

    @property
    def run_at(self) -> datetime | None:
        """When the job is due."""
        return self.status.run_at

    @property
    def singleton_key(self) -> str | None:
        """The job's key."""
        return self.status.singleton_key

    @property
    def headers(self) -> Mapping[str, str]:
        """The job's headers."""
        return self.status.headers or {}

    @property
    def max_attempts(self) -> int:
        """The largest number of runs."""
        return self.status.max_attempts

    def _part(self, name: str, default: Any) -> Any:
        payload: Any = self.payload
        return cast("dict[str, Any]", payload).get(name, default) if type(payload) is dict else default

    def __str__(self) -> str:
        if self.task is None:
            return f"{self.queue}/{self.id} {self.payload!r:.200}"
        named = [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}({', '.join([*map(repr, self.args), *named])}) as {self.queue}/{self.id}"


VALUES: Final = frozenset(name for name in ("status", "payload", *vars(EnqueuedJob)) if not name.startswith("_"))
