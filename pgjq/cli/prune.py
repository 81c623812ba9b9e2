"""`pgjq prune`: remove expired jobs and records now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pgjq.blocking import drive
from pgjq.cli.formatting import many
from pgjq.cli.open_storage import with_client

if TYPE_CHECKING:
    from pgjq.cli.output import Output
    from pgjq.client import Client

BATCH = 1000


@click.command()
@with_client
def prune(client: Client, output: Output) -> None:
    """Remove jobs and records whose retention has passed, in small batches.

    No worker waits for a batch. Workers do this by themselves, every few seconds; this is for where none runs, or for
    cron.

    \b
    Examples:
      pgjq prune --url postgresql://localhost/app
      PGJQ_URL=postgresql://localhost/app pgjq prune --schema jobs
    """  # noqa: D301
    ops = client.storage.operations("sync")
    with output.progress("pruned") as meter:
        while pruned := drive(ops.prune(limit=BATCH)):
            meter(meter.done + pruned)
    output.say(f"pruned {many(meter.done)}", jobs=meter.done)
