"""Options of jobs, of queues and of job filters as one table each, named as in Python.

`--retry-delay 5m` is `retry_delay=300.0`. Options not given are not set. pgjq's own checks validate the values; this
module has only names and help texts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.param_types import DURATION, MOMENT
from pgjq.job import STATES
from pgjq.policy import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: its Python name, its type and its help text."""

    name: str
    kind: Any
    help: str

    @property
    def flag(self) -> str:
        """The name on the command line."""
        dashed = self.name.replace("_", "-")
        return f"--{dashed}/--no-{dashed}" if self.kind is bool else f"--{dashed}"


BOTH: Final = (
    Setting("retry_limit", int, "Retries after the first run."),
    Setting("retry_delay", DURATION, "How long to wait before a retry."),
    Setting("retry_backoff", bool, "Double the delay with every retry."),
    Setting("retry_delay_max", DURATION, "The longest delay of a backoff."),
    Setting("heartbeat_seconds", DURATION, "The lease of a run, renewed twice as often."),
    Setting("expire_in_seconds", DURATION, "The longest that a run may take."),
    Setting("retention_seconds", DURATION, "How long a job may wait before it is deleted."),
    Setting("delete_after_seconds", DURATION, "How long the record of an ended job stays; 0 is for ever."),
    Setting("dead_letter", str, "The queue for jobs that failed for good."),
)
JOB: Final = (
    Setting("priority", int, "A higher one runs first."),
    Setting("delay", DURATION, "Run it no sooner than in so long."),
    Setting("run_at", MOMENT, "Run it no sooner than then, as 2026-01-31T09:30:00+01:00."),
    Setting("singleton_key", str, "The key that the queue's policy counts by."),
    Setting("max_attempts", int, "Runs at most, the first one included."),
    Setting("result_ttl", DURATION, "How long its result can be read."),
    Setting("on_failed", click.Choice(["enqueue", "duplicate"]), "What becomes of an id whose job failed."),
    Setting("singleton_seconds", DURATION, "At most one job in each slot of so long."),
    Setting("singleton_next_slot", bool, "What is too many for a slot runs in the next."),
    Setting("debounce", DURATION, "Both: slots of so long, and the next one for the rest."),
    *BOTH,
)
CHANGEABLE: Final = (
    Setting("warning_queue_size", int, "Warn when more jobs than that wait."),
    *BOTH,
)
QUEUE: Final = (
    Setting("policy", click.Choice(list(POLICIES)), "How many jobs of a key may be in which state."),
    Setting("partition", bool, "Give the queue tables of its own."),
    *CHANGEABLE,
)
FILTER: Final = (
    Setting("queue", str, "Jobs of this queue."),
    Setting("state", click.Choice(STATES), "Jobs in this state."),
    Setting("created_before", MOMENT, "Jobs enqueued before then."),
    Setting("created_after", MOMENT, "Jobs enqueued after then."),
    Setting("singleton_key", str, "Jobs with this key."),
    Setting("task", str, "Jobs of this task."),
)


def with_settings(table: Sequence[Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a table to a command, and pass the given ones as `settings`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def collecting(**options: Any) -> None:
            given = {setting.name: options.pop(setting.name) for setting in table}
            command(settings={name: value for name, value in given.items() if value is not None}, **options)

        decorated: Callable[..., None] = collecting
        for setting in reversed(table):
            kind: dict[str, Any] = {} if setting.kind is bool else {"type": setting.kind}
            decorated = click.option(setting.flag, setting.name, default=None, help=setting.help, **kind)(decorated)
        return decorated

    return decorate
