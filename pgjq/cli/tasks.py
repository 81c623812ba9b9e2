"""`pgjq tasks`: list the tasks of the queues in a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.command_group import Refusal
from pgjq.cli.completion import complete_targets
from pgjq.cli.open_storage import with_output
from pgjq.cli.queue_import import find_queues
from pgjq.tasks.depends import dependencies_of

if TYPE_CHECKING:
    from pgjq.cli.output import Columns, Output
    from pgjq.tasks.task import TaskBase

LIST: Final[Columns] = {
    "task": lambda task: task["task"],
    "queue": lambda task: task["queue"],
    "version": lambda task: task["version"],
    "signature": lambda task: task["signature"],
    "options": lambda task: " ".join(f"{name}={value}" for name, value in _all_options(task).items()),
}


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE[:QUEUE]...", shell_complete=complete_targets)
@click.option("--setup", metavar="MODULE:FUNCTION", help="Call a function before the import, such as django:setup.")
@with_output
def tasks(output: Output, *, targets: tuple[str, ...], setup: str | None) -> None:
    """List the tasks of a module's queues: name, queue, version, signature and options.

    The signature is that of `enqueue`: parameters that a worker provides are left out.

    \b
    Examples:
      pgjq tasks shop.tasks
      pgjq tasks shop.tasks:mail --json
    """  # noqa: D301
    found = [task for queue in find_queues(targets, setup=setup) for task in queue.tasks.values()]
    if not found:
        raise Refusal(f"there is no task in {', '.join(targets)}")
    output.rows([_facts(task) for task in found], LIST if not output.as_json else {})


def _facts(task: TaskBase[Any, Any]) -> dict[str, Any]:
    return {
        "task": task.name,
        "queue": task.queue.name,
        "version": task.version,
        "aliases": list(task.aliases),
        "signature": _signature(task),
        "options": {name: _shown(value) for name, value in task.options.items()},
    }


def _all_options(facts: dict[str, Any]) -> dict[str, Any]:
    return ({"aliases": facts["aliases"]} if facts["aliases"] else {}) | facts["options"]


def _signature(task: TaskBase[Any, Any]) -> str:
    provided = dependencies_of(task.function)
    signature = task.arguments.signature
    kept = [parameter for name, parameter in signature.parameters.items() if name not in provided]
    return f"{'async ' if task.is_coroutine else ''}{signature.replace(parameters=kept)}"


def _shown(value: Any) -> Any:
    """Return an option's value as data: a function or an exception type by its name."""
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return getattr(value, "__qualname__", value)
