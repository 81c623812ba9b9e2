"""`pgjq bench`: measure a storage from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pgjq.cli.bench_measurements import Figures, measure
from pgjq.cli.open_storage import with_client
from pgjq.cli.signal_cleanup import clean_exit

if TYPE_CHECKING:
    from pgjq.cli.output import Columns, Output
    from pgjq.client import Client

COLUMNS: Final[Columns] = {
    "what": lambda line: line[0],
    "value": lambda line: line[1],
    "means": lambda line: line[2],
}


@click.command()
@click.option(
    "--jobs", type=click.IntRange(100, 1_000_000), default=10_000, show_default=True, help="How many jobs to drain."
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Jobs at a time.")
@with_client
def bench(client: Client, output: Output, *, jobs: int, concurrency: int) -> None:
    """Measure a storage: enqueues and completions per second, and how soon a job starts.

    It uses a queue of its own, which it deletes at the end, with one client and one worker in this process and a
    handler that does nothing. Many processes together reach other figures. Measure with the settings that your storage
    will have.

    \b
    Examples:
      pgjq bench --url postgresql://localhost/app
      pgjq bench --url file:///tmp/jobs --jobs 50000 --concurrency 50 --json
    """  # noqa: D301
    with clean_exit(), output.stages() as show:
        figures = measure(client, jobs, concurrency, show)
    if output.as_json:
        output.record(figures)
    else:
        output.rows(_lines(figures), COLUMNS)


def _lines(figures: Figures) -> list[tuple[str, str, str]]:
    at_once = f"{figures.concurrency} at a time"
    return [
        ("enqueue", f"{figures.enqueue_rate:,.0f}/s", "jobs enqueued by one call each, one after the other"),
        ("enqueue_many", f"{figures.enqueue_many_rate:,.0f}/s", "jobs enqueued 1,000 by a call"),
        ("drain", f"{figures.drain_rate:,.0f}/s", f"jobs run by one worker process, {at_once}"),
        (
            "pickup",
            _latency(figures.pickup_p50_ms, figures.pickup_p95_ms),
            "from enqueue to the handler of an idle worker",
        ),
        (
            "round trip",
            _latency(figures.round_trip_p50_ms, figures.round_trip_p95_ms),
            "enqueue_and_wait, to the result",
        ),
    ]


def _latency(median: float, high: float) -> str:
    return f"{median:.1f} ms, p95 {high:.1f} ms"
