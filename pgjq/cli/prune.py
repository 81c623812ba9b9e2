"""pgjq prune: remove what is too old to keep, now."""

from __future__ import annotations

from contextlib import closing

import click

from pgjq.blocking import drive
from pgjq.cli.database import database
from pgjq.storage.postgres.storage import PostgresStorage

BATCH = 1000


@click.command()
@click.option("--url", envvar="PGJQ_URL", show_envvar=True, help="The database; without it, the embedded one.")
@click.option("--schema", default="pgjq", show_default=True, help="The schema that holds pgjq's tables.")
def prune(url: str | None, schema: str) -> None:
    """Remove jobs and records whose retention has passed, in small batches that no worker waits for.

    Workers do this by themselves, every few seconds; this is for where none runs, or for cron.

    \b
    Examples:
      pgjq prune --url postgresql://localhost/app
      PGJQ_URL=postgresql://localhost/app pgjq prune --schema jobs
    """  # noqa: D301
    with database(url) as conninfo, closing(PostgresStorage(conninfo, schema=schema)) as storage:
        ops, total = storage.operations("blocking"), 0
        while pruned := drive(ops.prune(limit=BATCH)):
            total += pruned
    click.echo(f"pruned {total} jobs")
