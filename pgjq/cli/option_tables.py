"""Options of jobs, of queues and of job filters as one table each, named as in Python.

`--retry-delay 5m` is `retry_delay=300.0`. Options not given are not set. Those of jobs and queues come from
`pgjq/declared_options.py`, with their help texts, and pgjq's own checks validate the values.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.completion import QUEUE_NAME, TASK_NAME
from pgjq.cli.param_types import DURATION, POINT_IN_TIME, TEXT_MAP
from pgjq.declared_options import ENQUEUE_OPTIONS, QUEUE_CHANGES, QUEUE_OPTIONS, SHARED_OPTIONS
from pgjq.job import STATES
from pgjq.option_kinds import Boolean, Choice, Duration, Integer, Key, PointInTime, QueueName, TextMap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pgjq.declared_options import Option
    from pgjq.option_kinds import Kind


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


# How the command line reads each kind of option.
_READERS: Final[dict[type, Any]] = {
    Integer: int,
    Duration: DURATION,
    PointInTime: POINT_IN_TIME,
    Boolean: bool,
    Key: str,
    QueueName: str,
    TextMap: TEXT_MAP,
}


def from_declared(options: Mapping[str, Option]) -> tuple[Setting, ...]:
    """Return declared options as options of the command line; those that jobs inherit come last."""
    names = sorted(options, key=lambda name: name in SHARED_OPTIONS)
    return tuple(Setting(name, _reader(options[name].kind), options[name].help) for name in names)


def _reader(kind: Kind) -> Any:
    return click.Choice(kind.words) if isinstance(kind, Choice) else _READERS[type(kind)]


JOB: Final = from_declared(ENQUEUE_OPTIONS)
CHANGEABLE: Final = from_declared(QUEUE_CHANGES)
QUEUE: Final = from_declared(QUEUE_OPTIONS)
FILTER: Final = (
    Setting("queue", QUEUE_NAME, "Jobs of this queue."),
    Setting("state", click.Choice(STATES), "Jobs in this state."),
    Setting("created_before", POINT_IN_TIME, "Jobs enqueued before then."),
    Setting("created_after", POINT_IN_TIME, "Jobs enqueued after then."),
    Setting("singleton_key", str, "Jobs with this key."),
    Setting("task", TASK_NAME, "Jobs of this task."),
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
