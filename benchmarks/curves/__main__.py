"""The command behind `make bench-growth`: curves of throughput and claim time over sizes, as an SVG file and tables.

Each section has an option for its sizes. A curve is one run: compare its points with each other, and not with those of
another machine or day. With `--data`, sections may be measured one after another and end up in one chart.
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
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
@click.option("--data", type=click.Path(path_type=Path), help="JSON file: keep the points there, beside earlier ones.")
def main(*, output: Path, data: Path | None, **chosen: tuple[int, ...]) -> None:
    """Measure how pgjq grows; print tables and draw curves."""
    kept: dict[str, Any] = json.loads(data.read_text()) if data is not None and data.exists() else {}
    with temporary_server() as server:
        for name, (measure, _) in SECTIONS.items():
            if chosen[name]:
                load, began = os.getloadavg()[0], time.monotonic()
                panels = measure(server, chosen[name])
                took = f"{time.monotonic() - began:.0f} s, load {load:.1f} to {os.getloadavg()[0]:.1f}"
                kept[name] = [asdict(panel) for panel in _joined(kept.get(name, []), panels)]
                click.echo("\n".join(panel.markdown() for panel in panels) + f"{name}: {took}\n")
    remark = f"{time.strftime('%d %B %Y')}, {platform.machine()}, {os.cpu_count()} cores"
    found = [Panel(**panel) for section in kept.values() for panel in section]
    output.write_text(draw(found, remark), encoding="utf-8")
    if data is not None:
        data.write_text(json.dumps(kept, indent=1) + "\n")
    click.echo(f"{remark}, Python {platform.python_version()}; the chart is in {output}")


def _joined(kept: Sequence[dict[str, Any]], panels: Sequence[Panel]) -> list[Panel]:
    """Return panels with the points of earlier ones at other sizes."""
    earlier = {panel["title"]: panel["curves"] for panel in kept}
    for panel in panels:
        for name, points in earlier.get(panel.title, {}).items():
            measured = dict(panel.curves.get(name, []))
            panel.curves[name] = sorted((dict(map(tuple, points)) | measured).items())
    return list(panels)


if __name__ == "__main__":
    main()
