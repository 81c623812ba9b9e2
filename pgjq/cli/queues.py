"""Commands on queues: `pgjq queues list`, `show`, `create`, `update`, `pause` and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.completion import QUEUE_NAME
from pgjq.cli.confirm import confirm
from pgjq.cli.formatting import duration, many
from pgjq.cli.open_storage import with_client
from pgjq.cli.option_tables import CHANGEABLE, QUEUE, with_settings
from pgjq.cli.queue_names import check_queue_exists, existing_queue, queue_names

if TYPE_CHECKING:
    from pgjq.cli.output import Columns, Output
    from pgjq.client import Client
    from pgjq.job import QueueInfo, QueueStats

LIST: Final[Columns] = {
    "name": lambda queue: queue.name,
    "policy": lambda queue: queue.policy,
    "paused": lambda queue: queue.paused,
    "dead_letter": lambda queue: queue.dead_letter,
    **{state: lambda queue, state=state: _counted(queue, state) for state in ("queued", "processing", "failed")},
}
COUNTS: Final = ("ready", "deferred", "processing", "failing", "completed", "failed", "cancelled")
STATS: Final[Columns] = {
    **{name: lambda stats, name=name: getattr(stats, name) for name in ("name", *COUNTS)},
    "oldest": lambda stats: None if stats.oldest_ready_age is None else duration(stats.oldest_ready_age),
}


@click.group()
def queues() -> None:
    """List, define, pause and count queues.

    A queue exists as soon as a job is enqueued into it, with default settings; a definition changes them.

    \b
    Examples:
      pgjq queues list
      pgjq queues create orders --policy key_strict_fifo --retry-limit 5 --retry-backoff
      pgjq queues stats orders
    """  # noqa: D301


@queues.command("list")
@with_client
def list_queues(client: Client, output: Output) -> None:
    """List all queues, with their sizes as a worker counted them last.

    \b
    Examples:
      pgjq queues list
      pgjq queues list --json
    """  # noqa: D301
    output.rows(client.get_queues(), LIST)


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@with_client
def show(client: Client, output: Output, *, name: str) -> None:
    """Show a queue's definition, with the values in force.

    \b
    Examples:
      pgjq queues show orders
    """  # noqa: D301
    with existing_queue(client, name):
        output.record(client.get_queue(name))


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@with_settings(QUEUE)
@with_client
def create(client: Client, output: Output, *, name: str, settings: dict[str, Any]) -> None:
    """Define a queue. One that is defined already stays as it is.

    \b
    Examples:
      pgjq queues create orders.failed
      pgjq queues create orders --policy singleton --retry-limit 5 --retry-delay 30s --dead-letter orders.failed
    """  # noqa: D301
    output.record(client.create_queue(name, **settings))


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@click.option(
    "--unset",
    multiple=True,
    type=click.Choice([setting.name for setting in CHANGEABLE]),
    help="Reset a setting to its default; may be given several times.",
)
@with_settings(CHANGEABLE)
@with_client
def update(client: Client, output: Output, *, name: str, unset: tuple[str, ...], settings: dict[str, Any]) -> None:
    """Change a queue's definition, for jobs to come. Its policy and partition stay.

    \b
    Examples:
      pgjq queues update orders --retry-limit 10 --no-retry-backoff
      pgjq queues update orders --unset retry_delay --unset dead_letter
    """  # noqa: D301
    if both := sorted(set(unset) & set(settings)):
        raise click.UsageError(f"set it or take it back, not both: {', '.join(both)}")
    if not settings and not unset:
        raise click.UsageError("say what to change")
    with existing_queue(client, name):
        output.record(client.update_queue(name, **settings, **dict.fromkeys(unset)))


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@with_client
def pause(client: Client, output: Output, *, name: str) -> None:
    """Pause a queue: workers skip it. What runs goes on, and enqueueing does.

    \b
    Examples:
      pgjq queues pause orders
    """  # noqa: D301
    with existing_queue(client, name):
        client.pause_queue(name)
    output.say(f"queue {name} is paused", queue=name, paused=True)


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@with_client
def resume(client: Client, output: Output, *, name: str) -> None:
    """Resume a paused queue.

    \b
    Examples:
      pgjq queues resume orders
    """  # noqa: D301
    with existing_queue(client, name):
        client.resume_queue(name)
    output.say(f"queue {name} is served again", queue=name, paused=False)


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@with_client
def delete(client: Client, output: Output, *, name: str, yes: bool) -> None:
    """Delete a queue and all its jobs, also those that run.

    \b
    Examples:
      pgjq queues delete orders
      pgjq queues delete orders --yes
    """  # noqa: D301
    with existing_queue(client, name):
        if not yes:
            client.get_queue(name)  # A missing queue needs no confirmation.
            stats = client.get_queue_stats(name)
            confirm(f"Delete queue {name} and its {many(stats.total)}, {stats.processing:,} of them running?", yes=yes)
        client.delete_queue(name)
    output.say(f"deleted queue {name}", queue=name, deleted=True)


@queues.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_client
def stats(client: Client, output: Output, *, names: tuple[str, ...]) -> None:
    """Count the jobs of queues by their state, now; without a name, of all queues.

    \b
    Examples:
      pgjq queues stats
      pgjq queues stats orders mail --json
    """  # noqa: D301
    output.rows([_stats(client, name) for name in names or queue_names(client)], STATS)


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@with_client
def blocked(client: Client, output: Output, *, name: str) -> None:
    """List the keys of a key_strict_fifo queue that failed jobs block.

    A key is blocked until these jobs are retried or deleted.

    \b
    Examples:
      pgjq queues blocked orders
    """  # noqa: D301
    with existing_queue(client, name):
        output.rows(client.get_blocked_keys(name), {"singleton_key": lambda key: key})


@queues.command()
@click.argument("name", type=QUEUE_NAME)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Largest number to send.")
@click.option("--to", help="Queue to send to (default: the queue of each dead letter's job).")
@with_client
def redrive(client: Client, output: Output, *, name: str, limit: int, to: str | None) -> None:
    """Send dead letters back to their queues.

    \b
    Examples:
      pgjq queues redrive orders.failed
      pgjq queues redrive orders.failed --to orders.again --limit 10
    """  # noqa: D301
    with existing_queue(client, name):
        sent = client.redrive(name, limit=limit, to=to)
    output.say(f"sent {many(sent)} back from queue {name}", queue=name, jobs=sent)


def _stats(client: Client, name: str) -> QueueStats:
    stats = client.get_queue_stats(name)
    if not stats.total:
        check_queue_exists(client, name)
    return stats


def _counted(queue: QueueInfo, state: str) -> int | None:
    counted: QueueStats | None = queue.stats
    return None if counted is None else getattr(counted, state)
