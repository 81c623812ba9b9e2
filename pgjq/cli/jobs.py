"""Commands on many jobs, by a filter: `pgjq jobs find`, `retry`, `cancel`, `delete`."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.confirm import confirm
from pgjq.cli.formatting import many
from pgjq.cli.open_storage import with_client
from pgjq.cli.option_tables import FILTER, with_settings
from pgjq.cli.output import Meter
from pgjq.cli.queue_names import check_queue_exists
from pgjq.job import LIVE, STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq.cli.output import Columns, Output
    from pgjq.client import Client
    from pgjq.job import JobStatus

PAGE: Final = 1000
COLUMNS: Final[Columns] = {
    "queue": lambda job: job.queue,
    "id": lambda job: job.id,
    "state": lambda job: job.state,
    "attempts": lambda job: f"{job.attempts}/{job.max_attempts}",
    "created_at": lambda job: job.created_at,
    "error": lambda job: job.error,
}
DONE: Final = {"retry": "retried", "cancel": "cancelled", "delete": "deleted"}
# The states that each command applies to: it never touches running jobs, and only ended jobs can be retried.
TAKEN: Final = {
    "retry": frozenset(("failed", "cancelled")),
    "cancel": LIVE - {"processing"},
    "delete": frozenset(STATES) - {"processing"},
}

_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Count the jobs, and leave them as they are.")
_YES: Final = click.option("--yes", is_flag=True, help="Do not ask first.")


@click.group()
def jobs() -> None:
    """Find jobs by queue, state, age or key; retry, cancel or delete all of them.

    \b
    Examples:
      pgjq jobs find --queue mail --state failed
      pgjq jobs retry --queue mail --state failed
      pgjq jobs delete --state cancelled --created-before 2026-01-01T00:00:00Z --dry-run
    """  # noqa: D301


@jobs.command()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Largest number to list.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@with_settings(FILTER)
@with_client
def find(client: Client, output: Output, *, settings: dict[str, Any], limit: int, everything: bool) -> None:
    """List jobs in the order of their enqueues.

    \b
    Examples:
      pgjq jobs find --queue mail --state failed --limit 20
      pgjq jobs find --created-after 2026-01-31T00:00:00+01:00 --all --json
    """  # noqa: D301
    size = PAGE if everything else min(PAGE, limit + 1)
    pages = _pages(client, settings, size)
    first = next(pages)
    if not first:
        _check_queue(client, settings)
    found = chain(first, chain.from_iterable(pages))
    output.rows(found if everything else islice(found, limit), COLUMNS)
    if next(found, None) is not None:
        output.note(f"these are the first {limit:,}; --limit or --all shows more")


@jobs.command()
@_DRY_RUN
@with_settings(FILTER)
@with_client
def retry(client: Client, output: Output, *, settings: dict[str, Any], dry_run: bool) -> None:
    """Requeue failed jobs in their places, with all their attempts; or --state cancelled ones.

    Jobs that their queue's policy has no place for stay as they are.

    \b
    Examples:
      pgjq jobs retry --queue mail --dry-run
      pgjq jobs retry --queue mail --created-after 2026-01-31T09:00:00Z
      pgjq jobs retry --queue mail --state cancelled
    """  # noqa: D301
    _check(settings)
    _act("retry", client.retry_many, client, output, {"state": "failed", **settings}, yes=True, dry_run=dry_run)


@jobs.command()
@_DRY_RUN
@_YES
@with_settings(FILTER)
@with_client
def cancel(client: Client, output: Output, *, settings: dict[str, Any], yes: bool, dry_run: bool) -> None:
    """Cancel jobs that wait for their first run or for a retry. Running ones are left alone.

    \b
    Examples:
      pgjq jobs cancel --queue mail --dry-run
      pgjq jobs cancel --queue mail --singleton-key customer-7 --yes
    """  # noqa: D301
    _check(settings)
    _act("cancel", client.cancel_many, client, output, settings, yes=yes, dry_run=dry_run)


@jobs.command()
@_DRY_RUN
@_YES
@with_settings(FILTER)
@with_client
def delete(client: Client, output: Output, *, settings: dict[str, Any], yes: bool, dry_run: bool) -> None:
    """Delete jobs that are not running, and free their ids. Running ones are left alone.

    \b
    Examples:
      pgjq jobs delete --queue mail --state failed --dry-run
      pgjq jobs delete --state cancelled --created-before "$(date -Is -d '7 days ago')" --yes
    """  # noqa: D301
    _check(settings)
    _act("delete", client.delete_many, client, output, settings, yes=yes, dry_run=dry_run)


def _check(wanted: dict[str, Any]) -> None:
    if not wanted:
        raise click.UsageError("say which jobs: --queue, --state, --created-before, --created-after, --singleton-key")


def _check_queue(client: Client, wanted: dict[str, Any]) -> None:
    """Refuse a queue name that does not exist, if no job was found."""
    if "queue" in wanted:
        check_queue_exists(client, wanted["queue"])


def _act(
    action: str,
    act: Callable[..., int],
    client: Client,
    output: Output,
    wanted: dict[str, Any],
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    total = _count(client, output, wanted, TAKEN[action]) if dry_run or not yes else None
    if dry_run:
        if not total:
            _check_queue(client, wanted)
        output.say(f"{many(total or 0)} would be {DONE[action]}", action=action, dry_run=True, jobs=total)
        return
    if total != 0:
        confirm(f"{action.capitalize()} {many(total or 0)}?", yes=yes)
    done = _counted(action, act, output, wanted, total) if total != 0 else 0
    if not done:
        _check_queue(client, wanted)
    output.say(f"{DONE[action]} {many(done)}", action=action, dry_run=False, jobs=done)


def _counted(action: str, act: Callable[..., int], output: Output, wanted: dict[str, Any], total: int | None) -> int:
    meter = Meter()
    try:
        with output.progress(DONE[action], total) as meter:
            return act(**wanted, progress=meter)
    except BaseException:  # The bar is gone by now, and the line is free.
        output.note(f"{many(meter.done)} {DONE[action]} so far; the others are as they were")
        raise


def _count(client: Client, output: Output, wanted: dict[str, Any], states: frozenset[str]) -> int:
    with output.progress("counted") as meter:
        for page in _pages(client, wanted):
            meter(meter.done + sum(job.state in states for job in page))
        return meter.done


def _pages(client: Client, wanted: dict[str, Any], size: int = PAGE) -> Iterator[list[JobStatus]]:
    after: int | None = 0
    while after is not None:
        page = client.find_jobs(**wanted, after=after, limit=size)
        yield page
        after = page.next
