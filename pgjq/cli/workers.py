"""`pgjq workers`: list the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pgjq.cli.open_storage import with_client

if TYPE_CHECKING:
    from pgjq.cli.output import Columns, Output
    from pgjq.client import Client

COLUMNS: Final[Columns] = {
    "id": lambda worker: worker.id,
    "queues": lambda worker: worker.queues,
    "alive": lambda worker: worker.alive,
    "started_at": lambda worker: worker.started_at,
    "last_seen": lambda worker: worker.last_seen,
    "running": lambda worker: worker.running,
}


@click.command()
@with_client
def workers(client: Client, output: Output) -> None:
    """List live workers, then those that fell silent within a day without having stopped.

    A worker is alive until it has been silent for three of its own heartbeat intervals.

    \b
    Examples:
      pgjq workers
      pgjq workers --json
    """  # noqa: D301
    output.rows(client.get_workers(), COLUMNS)
