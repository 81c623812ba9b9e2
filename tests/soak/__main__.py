"""The command: work for long, and say whether anything grows."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click

from tests.soak.chart import draw
from tests.soak.run import Soak


@click.command()
@click.option("--seconds", type=float, default=3600.0, show_default=True, help="Length of the run.")
@click.option("--chart", type=click.Path(path_type=Path), default="soak.svg", show_default=True, help="Chart to write.")
def main(*, seconds: float, chart: Path) -> None:
    """Run mixed jobs, schedules, retries and calls while workers are killed, and judge what grows."""
    with closing(Soak()) as soak:
        result = soak.play(seconds)
    chart.write_text(draw(result.verdict, result.samples.seconds, result.samples.curves))
    click.echo(f"{result.verdict}\nthe chart is in {chart}")
    sys.exit(bool(result.wrong))


if __name__ == "__main__":
    main()
