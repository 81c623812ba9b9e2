"""`pgjq scale`: how many slots of workers a queue needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pgjq.blocking import drive
from pgjq.cli.open_storage import with_output, with_storage
from pgjq.cli.param_types import DURATION
from pgjq.generic_metrics import reader_of
from pgjq.options import check_queue, check_seconds

if TYPE_CHECKING:
    from pgjq.cli.output import Output
    from pgjq.storage.base import Storage


@click.command()
@click.argument("queue")
@click.option("--target", type=DURATION, required=True, help="How soon the jobs that are ready now should start.")
@with_storage
@with_output
def scale(output: Output, storage: Storage, *, queue: str, target: float) -> None:
    """Print how many slots QUEUE needs to start the jobs that are ready now within --target.

    Divide it by the concurrency of your workers. It is 0 if no job is ready or running. In SQL:
    pgjq.scale(queue, target_seconds).

    \b
    Examples:
      pgjq scale mail --target 60
      pgjq scale mail --target 5m --json
    """  # noqa: D301
    check_seconds("target", target, above=0)
    needed = drive(reader_of(storage).scale(check_queue(queue), target))
    output.say(str(needed), queue=queue, target=target, slots=needed)
