"""The command: many hostile values for every entry point, on each storage. What fails is shrunk and printed."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import pgjq
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import throwaway_directory
from tests.fuzz import entry_points as points
from tests.fuzz import values
from tests.fuzz.storages import STORAGES, opened
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage


@click.command()
@click.option(
    "--cases", default=10_000, show_default=True, help="Number of cases for each storage and for the parsers."
)
@click.option("--storage", "chosen", multiple=True, type=click.Choice(STORAGES), help="Storage; may be repeated.")
@click.option("--seed", "start", default=0, show_default=True, help="Random seed.")
def main(*, cases: int, chosen: tuple[str, ...], start: int) -> None:
    """Feed hostile values to every entry point."""
    failed = 0
    for name in chosen or STORAGES:
        with ExitStack() as stack:
            failed += fuzz_storage(name, stack.enter_context(opened(name, address(name, stack))), cases, start)
    if not chosen:
        failed += fuzz_parsers(cases, start)
    click.echo(f"fuzz: {cases:,} cases for each storage, {failed} defects (seed {start})")
    sys.exit(bool(failed))


def address(name: str, stack: ExitStack) -> str:
    """Start what a storage needs."""
    directory = stack.enter_context(throwaway_directory("fuzz-"))
    if name == "postgres":
        server = stack.enter_context(EmbeddedServer.start(directory / "postgres", settings={"fsync": "off"}))
        pgjq.migrate(server.conninfo)
        return server.conninfo
    if name == "redis":
        server = RedisServer(directory)
        stack.callback(server.kill)
        return server.url
    return str(directory / "jobs")


def fuzz_storage(name: str, storage: Storage, cases: int, start: int) -> int:
    """Fuzz every entry point of one storage; return how many have defects."""
    failed = 0
    entry_points = points.of_storage(name)
    for number, (what, (feed, strategies)) in enumerate(entry_points.items()):
        share = max(1, cases // len(entry_points))
        failed += fuzz(
            f"{name} {what}", share, start, st.tuples(*strategies), lambda drawn, feed=feed: feed(storage, *drawn)
        )
        points.check_works(storage, number)
    return failed


def fuzz_parsers(cases: int, start: int) -> int:
    """Fuzz what reads text and bytes."""
    folders = Path(tempfile.mkdtemp())
    numbers = iter(range(10**9))
    return sum(
        (
            fuzz(
                "command line",
                cases // 10,
                start,
                values.arguments,
                lambda a: points.command(pgjq.MemoryStorage(), a, "memory:"),
            ),
            fuzz("urls", cases, start, values.urls, points.open_url),
            fuzz(
                "journal",
                cases // 10,
                start,
                points.lines,
                lambda lines: points.read_journal(folders / str(next(numbers)), lines),
            ),
            fuzz("redis replies", cases, start, points.resp, points.read_replies),
        )
    )


def fuzz(what: str, cases: int, start: int, strategy: st.SearchStrategy[Any], feed: Callable[[Any], object]) -> bool:
    """Run one target; say what failed."""
    began = time.monotonic()

    @seed(start)
    @settings(max_examples=cases, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(drawn: Any) -> None:
        feed(drawn)

    try:
        run()
    except Exception:  # noqa: BLE001  (a defect is reported, and the next target follows)
        click.echo(f"DEFECT {what}\n{traceback.format_exc()[-6000:]}")
        return True
    click.echo(f"{what}: {cases:,} cases in {time.monotonic() - began:.0f} s")
    return False


if __name__ == "__main__":
    main()
