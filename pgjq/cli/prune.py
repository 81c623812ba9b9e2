"""pgjq prune: remove what is too old to keep, now."""

from __future__ import annotations

from contextlib import closing

import click

from pgjq.blocking import drive
from pgjq.cli.database import database
from pgjq.storage.postgres.storage import PostgresStorage

BATCH = 1000


@click.command()
@click.option("--url", envvar="PGJQ_URL", help="The database; PGJQ_URL, or an embedded PostgreSQL, if not given.")
@click.option("--schema", default="pgjq", show_default=True, help="The schema that the tables are in.")
def prune(url: str | None, schema: str) -> None:
    """Remove jobs and records whose retention has passed, in small batches that no worker waits for.

    Workers do this by themselves, every few seconds; this is for where none runs, or for cron.
    """
    with database(url) as conninfo, closing(PostgresStorage(conninfo, schema=schema)) as storage:
        ops, total = storage.operations("blocking"), 0
        while pruned := drive(ops.prune(limit=BATCH)):
            total += pruned
    click.echo(f"pruned {total} jobs")
