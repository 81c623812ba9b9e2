"""`pgjq doctor`: check a storage, and say what to do."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.formatting import one_line
from pgjq.cli.open_storage import open_named, with_address, with_output
from pgjq.cli.param_types import DURATION
from pgjq.doctor import Finding, Thresholds, examine, unusable, worst
from pgjq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.cli.output import Output

EXIT_CODES: Final = {"ok": 0, "warning": 1, "error": 2}
COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_HELP: Final[dict[str, tuple[Any, str]]] = {
    "clock_skew": (DURATION, "Clocks that differ by more."),
    "listen_timeout": (DURATION, "How long a notification may take."),
    "silent_heartbeats": (float, "Workers silent for more of their heartbeat intervals."),
    "ready_age": (DURATION, "Queues whose oldest job has been ready for longer."),
    "overdue": (DURATION, "Running jobs past their deadline for longer."),
    "failure_age": (DURATION, "Jobs that failed for good within this time."),
    "snapshot_age": (DURATION, "Snapshots held for longer."),
    "dead_rows": (int, "Tables of live jobs with more dead rows."),
    "bloat": (int, "Mostly empty tables of live jobs with more bytes."),
    "connections": (float, "Share of max_connections in use."),
}


def _with_thresholds(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each threshold, and pass them as `thresholds`."""

    @functools.wraps(command)
    def collecting(*args: Any, **options: Any) -> None:
        given = {field.name: options.pop(field.name) for field in fields(Thresholds)}
        command(*args, thresholds=Thresholds(**given), **options)

    decorated: Callable[..., None] = collecting
    for field in reversed(fields(Thresholds)):
        kind, text = _HELP[field.name]
        flag = f"--{field.name.replace('_', '-')}"
        decorated = click.option(flag, type=kind, default=field.default, show_default=True, help=text)(decorated)
    return decorated


@click.command()
@_with_thresholds
@with_output
@with_address
@click.pass_context
def doctor(ctx: click.Context, output: Output, url: str | None, schema: str, *, thresholds: Thresholds) -> None:
    """Check the storage, its workers and its queues; say what to do about each finding.

    The options are thresholds: what is beyond them is a warning. The exit code is 0 if all is well, 1 if there are
    warnings, 2 if there are errors, such as a database that cannot be reached.

    \b
    Examples:
      pgjq doctor
      pgjq doctor --json
      pgjq doctor --snapshot-age 1h --connections 0.9
    """  # noqa: D301
    found = _examine(url, schema, thresholds)
    if output.as_json:
        output.rows(found, {})
    else:
        for finding in found:
            _show(finding)
    ctx.exit(EXIT_CODES[worst(found)])


def _examine(url: str | None, schema: str, thresholds: Thresholds) -> list[Finding]:
    try:
        with open_named(url, schema) as storage:

            async def examining() -> list[Finding]:
                try:
                    return await examine(storage, thresholds)
                finally:
                    await storage.operations("async").close()

            return asyncio.run(examining())
    except StorageError as error:
        return unusable(error)


def _show(finding: Finding) -> None:
    level = click.style(f"{finding.level:<8}", fg=COLOURS[finding.level], bold=finding.level != "ok")
    click.echo(f"{level}{finding.check:<12}{one_line(finding.message)}")
    if finding.advice:
        click.echo(f"{'':20}-> {one_line(finding.advice)}")
