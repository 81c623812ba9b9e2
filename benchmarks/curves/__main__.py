"""The command behind `make bench-growth`: curves of throughput and claim time over sizes, as an SVG file and tables.

Each section has an option for its sizes. The defaults take some minutes; docs/performance.md has the full sizes. A
curve is one run: compare its points with each other, and not with those of another machine or day.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.curves import sections
from benchmarks.curves.plot import Panel, draw
from benchmarks.databases import temporary_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.embedded import EmbeddedServer

SECTIONS: dict[str, tuple[Callable[[EmbeddedServer, Sequence[int]], list[Panel]], str]] = {
    "waiting": (sections.waiting, "1000,10000,100000,1000000"),
    "ended": (sections.ended, "1000,10000,100000,1000000"),
    "processes": (sections.processes, "1,2,4,8"),
    "queues": (sections.queues, "1,10,100,1000"),
    "keys": (sections.keys, "1,10,100,1000,10000,100000"),
    "schedules": (sections.schedules, "10,100,1000,10000"),
}


class Sizes(click.ParamType[tuple[int, ...]]):
    """Numbers that are separated by commas; none leaves the section out."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read the numbers."""
        parts = [part.strip() for part in str(value).split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r}: expected numbers above 0, separated by commas", param, ctx)
        return tuple(int(part) for part in parts)


def _options(command: click.Command) -> click.Command:
    for name, (_, default) in SECTIONS.items():
        text = f"Sizes of the section {name}; '' leaves it out."
        command.params.append(click.Option([f"--{name}"], type=Sizes(), default=default, show_default=True, help=text))
    return command


@_options
@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), default="growth.svg", show_default=True, help="Name of the chart."
)
def main(*, output: Path, **chosen: tuple[int, ...]) -> None:
    """Measure how pgjq grows; print tables and draw curves."""
    load, panels = os.getloadavg()[0], list[Panel]()
    with temporary_server() as server:
        for name, (measure, _) in SECTIONS.items():
            if not chosen[name]:
                continue
            began = time.monotonic()
            found = measure(server, chosen[name])
            panels += found
            click.echo("\n".join(panel.markdown() for panel in found))
            click.echo(f"{name}: {time.monotonic() - began:.0f} s\n")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    remark = f"{time.strftime('%d %B %Y')}, {machine}, load {load:.1f} to {os.getloadavg()[0]:.1f}"
    output.write_text(draw(panels, remark), encoding="utf-8")
    click.echo(f"{remark}; the chart is in {output}")


if __name__ == "__main__":
    main()
