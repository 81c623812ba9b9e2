"""The command: measure some topics, or all of them, and print what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console

from benchmarks import (
    bulk_enqueue,
    claim,
    delays,
    import_time,
    pickup,
    policies,
    reap,
    release,
    round_trip,
    single_enqueue,
    spark_pipeline,
    spark_read,
    spark_write,
    storages,
    tasks,
    wakeups,
    web_pages,
    worker_memory,
    worker_throughput,
)
from benchmarks.databases import temporary_server
from benchmarks.measure import FULL, QUICK, Finding, Scale
from benchmarks.report import table
from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.embedded import EmbeddedServer

TOPICS: dict[str, Callable[[EmbeddedServer, Scale], list[Finding]]] = {
    "import_time": import_time.measure,
    "bulk_enqueue": bulk_enqueue.measure,
    "single_enqueue": single_enqueue.measure,
    "claim": claim.measure,
    "wakeups": wakeups.measure,
    "worker_throughput": worker_throughput.measure,
    "tasks": tasks.measure,
    "pickup": pickup.measure,
    "delays": delays.measure,
    "round_trip": round_trip.measure,
    "reap": reap.measure,
    "release": release.measure,
    "worker_memory": worker_memory.measure,
    "storages": storages.measure,
    "policies": policies.measure,
    "web_pages": web_pages.measure,
    "spark_read": spark_read.measure,
    "spark_write": spark_write.measure,
    "spark_pipeline": spark_pipeline.measure,
}


@click.command(help="Measure pgjq as ratios within one run. TOPICS: " + ", ".join(TOPICS) + "; all, if none is named.")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", type=click.Choice(list(TOPICS)))
@click.option("--quick", is_flag=True, help="Fewer rounds of less work: shows that everything runs, proves little.")
def main(names: tuple[str, ...], *, quick: bool) -> None:
    console = Console(width=150) if not Console().is_terminal else Console()
    try:
        _measure(console, names or tuple(TOPICS), QUICK if quick else FULL)
    except PgjqError as error:
        raise click.ClickException(str(error)) from error


def _measure(console: Console, names: tuple[str, ...], scale: Scale) -> None:
    with temporary_server() as server:
        for name in names:
            with console.status(f"measuring {name}"):
                findings = TOPICS[name](server, scale)
            console.print(table(f"{name}{' (quick)' if scale is QUICK else ''}", findings))


if __name__ == "__main__":
    main()
