"""The command: measure some topics, or all of them, and print what came out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from benchmarks import (
    bulk_enqueue,
    claim,
    delays,
    growth,
    idle_worker,
    import_time,
    latency,
    observability,
    pinned_snapshot,
    policies,
    reap,
    release,
    round_trip,
    schedules,
    single_enqueue,
    spark_cluster,
    spark_pipeline,
    spark_read,
    spark_write,
    start,
    storages,
    tasks,
    wakeups,
    web_pages,
    worker_memory,
    worker_throughput,
)
from benchmarks.chart import draw
from benchmarks.databases import temporary_server
from benchmarks.measure import FULL, QUICK, Finding, Scale
from benchmarks.report import table
from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.embedded import EmbeddedServer

TOPICS: dict[str, Callable[[EmbeddedServer, Scale], list[Finding]]] = {
    "import_time": import_time.measure,
    "start": start.measure,
    "bulk_enqueue": bulk_enqueue.measure,
    "single_enqueue": single_enqueue.measure,
    "claim": claim.measure,
    "wakeups": wakeups.measure,
    "worker_throughput": worker_throughput.measure,
    "tasks": tasks.measure,
    "schedules": schedules.measure,
    "observability": observability.measure,
    "latency": latency.measure,
    "delays": delays.measure,
    "round_trip": round_trip.measure,
    "reap": reap.measure,
    "release": release.measure,
    "worker_memory": worker_memory.measure,
    "idle_worker": idle_worker.measure,
    "growth": growth.measure,
    "pinned_snapshot": pinned_snapshot.measure,
    "storages": storages.measure,
    "policies": policies.measure,
    "web_pages": web_pages.measure,
    "spark_read": spark_read.measure,
    "spark_write": spark_write.measure,
    "spark_pipeline": spark_pipeline.measure,
    "spark_cluster": spark_cluster.measure,
}


@click.command(help="Measure pgjq as ratios within one run. TOPICS: " + ", ".join(TOPICS) + "; all, if none is named.")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", type=click.Choice(list(TOPICS)))
@click.option("--quick", is_flag=True, help="Fewer rounds of less work: shows that everything runs, proves little.")
@click.option("--growth", type=int, help="Waiting and ended jobs of the topic growth (default: 2,000,000).")
@click.option("--pinned", type=float, help="Seconds of the topic pinned_snapshot (default: 120).")
@click.option("--chart", type=click.Path(dir_okay=False), help="Also draw ratios that have targets, as an SVG file.")
def main(names: tuple[str, ...], *, quick: bool, growth: int | None, pinned: float | None, chart: str | None) -> None:
    console = Console(width=150) if not Console().is_terminal else Console()
    given = {name: value for name, value in (("growth", growth), ("pinned", pinned)) if value is not None}
    scale = replace(QUICK if quick else FULL, **given)
    try:
        findings = _measure(console, names or tuple(TOPICS), scale, " (quick)" if quick else "")
    except PgjqError as error:
        raise click.ClickException(str(error)) from error
    if chart is not None:
        Path(chart).write_text(draw(findings), encoding="utf-8")


def _measure(console: Console, names: tuple[str, ...], scale: Scale, remark: str) -> list[Finding]:
    found: list[Finding] = []
    with temporary_server() as server:
        for name in names:
            with console.status(f"measuring {name}"):
                findings = TOPICS[name](server, scale)
            load = os.getloadavg()[0]
            console.print(table(f"{name}{remark}, load {load:.1f} at its end", findings))
            found += findings
    return found


if __name__ == "__main__":
    main()
