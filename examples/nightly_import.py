"""Import a file every night; a killed worker leaves every line in the database once.

The task reads a file of prices in chunks. It commits each chunk separately and saves a checkpoint after it. When a
worker dies, the next worker continues at the checkpoint. It may write one chunk again, if the first worker died between
the commit and the checkpoint, so writing is idempotent: an existing line is replaced by itself. The commit that
completes the job also writes the line of `import_log`, so there is one such line.

    pgjq worker nightly_import:imports &
    python nightly_import.py prices.csv            # once: schedules the import, and starts the first one now
    pgjq schedules explain nightly
"""

from __future__ import annotations

import csv
import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

import pgjq

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1000

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)
imports = pgjq.Queue(
    "imports",
    storage=storage,
    # An import may take hours. Its lease can still be short, because the worker renews it: reapers notice a dead worker
    # after 10 seconds.
    lease_policy=pgjq.LeasePolicy(lease=10, heartbeat=3, expire=6 * 3600),
    max_attempts=10,
)

TABLES = (
    "create table if not exists price (article text primary key, cents int not null)",
    "create table if not exists import_log (file text, lines int, ended timestamptz default now())",
)
# Writing a line twice has the same effect as once: this makes a chunk safe to repeat.
WRITE = "insert into price values (%s, %s) on conflict (article) do update set cents = excluded.cents"


@imports.task
def import_prices(file: Path) -> None:
    """Import a file, starting at the checkpoint of the last run."""
    job = pgjq.current_job(pgjq.Job)
    done: int = job.checkpoint or 0
    print(f"attempt {job.attempts} begins after line {done}", flush=True)
    with psycopg.connect(storage.conninfo, autocommit=True) as database:
        for chunk in read_chunks(file, done):
            job.signal.raise_if_aborted()  # Cancelled, or the worker stops: end here and keep the checkpoint.
            with database.transaction(), database.cursor() as cursor:
                cursor.executemany(WRITE, chunk)
            done += len(chunk)
            job.save_checkpoint(done)  # Raises LeaseLostError if another worker has this job by now.
    # This insert must not be repeated. It commits with the job's completion, or not at all if the lease is lost.
    with job.transaction() as database:
        database.execute("insert into import_log (file, lines) values (%s, %s)", [str(file), done])
        job.result = {"lines": done}


def read_chunks(path: Path, done: int) -> Iterator[list[tuple[str, int]]]:
    """Yield the lines after the first `done` ones, in chunks."""
    with path.open(newline="") as file:
        lines = islice(csv.reader(file), done, None)
        while chunk := [(article, int(cents)) for article, cents in islice(lines, CHUNK)]:
            yield chunk


def main(file: str) -> None:
    """Schedule the import for every night, and start the first one now; a second call changes the file."""
    with psycopg.connect(storage.conninfo) as database:
        for table in TABLES:
            database.execute(table)
    client, payload = imports.client, import_prices.call(Path(file).resolve()).payload
    if any(schedule.name == "nightly" for schedule in client.get_schedules()):
        client.update_schedule("nightly", payload=payload)
    else:
        # A night without a worker is made up for once; no import begins while the last one is still going on.
        client.create_schedule(
            "nightly", "imports", payload, cron="0 3 * * *", timezone="Europe/Berlin", overlap="skip", max_attempts=10
        )
        print(client.trigger_schedule("nightly"))
    print("the next import is at", client.get_schedule("nightly").next_run_at)


if __name__ == "__main__":
    main(*sys.argv[1:])
    storage.close()
