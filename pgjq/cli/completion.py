"""Shell completion of the names of queues, tasks and schedules.

Names come from the storage that `--url` or PGJQ_URL names; without either there are none: a completion starts no
server. For `pgjq worker` they come from the module. A completion that fails offers nothing, and says nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from pgjq.cli.open_storage import open_named
from pgjq.cli.queue_import import find_queues
from pgjq.cli.queue_names import queue_names
from pgjq.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Jobs to look at for the names of tasks.
LOOK: Final = 1000


class Name(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  (click 8.1 takes none)
    """A text whose completions are names in the storage."""

    name = "text"

    def __init__(self, names: Callable[[Client, click.Context], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like this."""
        del param
        url = ctx.params.get("url") or os.environ.get("PGJQ_URL")
        if not url:
            return []
        os.environ.setdefault("PGCONNECT_TIMEOUT", "2")
        with _quietly(), open_named(url, ctx.params.get("schema") or "pgjq") as storage:
            return _items(self._names(Client(storage), ctx), incomplete)
        return []


@contextlib.contextmanager
def _quietly() -> Any:
    with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stderr(io.StringIO()):
        yield


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


def _tasks(client: Client, ctx: click.Context) -> list[str]:
    # Before an option without its value click has not assigned the arguments.
    queue = ctx.params.get("queue") or next(iter(ctx.args), None)
    jobs = client.find_jobs(queue=queue, limit=LOOK)
    return [job.task for job in jobs if job.task is not None]


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the queues of a module, as `shop.tasks:mail`, once its name is written."""
    del ctx, param
    module, colon, _ = incomplete.partition(":")
    if not colon:
        return []
    with _quietly():
        queues = find_queues([module])
        names = [f"{module}:{name}" for name, thing in vars(import_module(module)).items() if thing in queues]
        return _items(names, incomplete)
    return []


def _complete_module_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del param
    with _quietly():
        return _items((queue.name for queue in find_queues(ctx.params.get("targets") or ctx.args)), incomplete)
    return []


QUEUE_NAME: Final = Name(lambda client, _: queue_names(client))
TASK_NAME: Final = Name(_tasks)
SCHEDULE_NAME: Final = Name(lambda client, _: [schedule.name for schedule in client.get_schedules()])
MODULE_QUEUES: Final[dict[str, Any]] = {"shell_complete": _complete_module_queues}
