"""`pgjq pipeline`: turn the history of jobs into tables, advice and a report, with Spark."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from pgjq.cli.database import database
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import throwaway_directory
from pgjq.errors import ValidationError
from pgjq.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.spark.pipeline.extract import Source
    from pgjq.spark.pipeline.quality import QualityError
    from pgjq.spark.pipeline.run import Summary

_UNITS: Final = {"d": "days", "h": "hours", "w": "weeks"}
# For a temporary server: its data need not survive a power failure.
_THROWAWAY: Final = {"fsync": "off", "synchronous_commit": "off", "max_wal_size": "4GB", "shared_buffers": "256MB"}
_LAKE: Final = click.option("--lake", required=True, metavar="DIR", help="The directory that the tables are in.")
_MASTER: Final = click.option("--master", help="Spark master URL (default: local[*], all cores of this machine).")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print what came out as JSON.")


@click.group()
def pipeline() -> None:
    """Turn the history of jobs into tables, advice and a report, with Spark.

    \b
    Examples:
      pgjq pipeline demo                                                  see all of it on a made-up history
      pgjq pipeline run --url postgresql://localhost/app --lake jobs.lake
      pgjq pipeline report --lake jobs.lake --out report.html
    """  # noqa: D301


@pipeline.command()
@click.option("--url", envvar="PGJQ_URL", show_envvar=True, help="The database; without it, the embedded one.")
@click.option("--schema", default="pgjq", show_default=True, help="The schema that holds pgjq's tables.")
@_LAKE
@click.option("--since", help="Leave out what ended before: a date, a point in time, or an age such as 30d or 12h.")
@_MASTER
@_JSON
def run(url: str | None, schema: str, lake: str, since: str | None, master: str | None, *, as_json: bool) -> None:
    """Bring what has ended since the last run into a lake, and measure it.

    Only new endings are read, and only days that they touch are measured again. A run that was killed is taken up by
    the next one. What was wrong with a row of history is shown, and then nothing of its batch is published.

    \b
    Examples:
      pgjq pipeline run --url postgresql://localhost/app --lake jobs.lake
      pgjq pipeline run --lake /mnt/shared/jobs.lake --master spark://head:7077
    """  # noqa: D301
    begins = None if since is None else read_since(since, datetime.now(UTC))
    with _spark_extra():
        from pgjq.spark.pipeline.extract import Source
        from pgjq.spark.pipeline.lake import Lake
    Lake.check(lake)  # Before a server or Java is started.
    with database(url) as conninfo:
        summary = _run(Console(stderr=True), Source(conninfo, schema, begins), lake, master)
    _print(summary, as_json=as_json)


@pipeline.command()
@_LAKE
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="Where the page goes.")
@_JSON
def report(lake: str, out: str, *, as_json: bool) -> None:
    """Write a report of a lake: one page that needs no network.

    \b
    Examples:
      pgjq pipeline report --lake jobs.lake --out report.html
    """  # noqa: D301
    size = _write_report(lake, Path(out))
    click.echo(json.dumps({"report": str(Path(out).resolve()), "bytes": size}) if as_json else f"wrote {out}")


@pipeline.command()
@click.option(
    "--jobs", type=click.IntRange(1000, 20_000_000), default=1_000_000, show_default=True, help="How many, about."
)
@click.option("--days", type=click.IntRange(14, 730), default=91, show_default=True, help="On how many days.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Another one, another history."
)
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="Where the report goes.")
@_MASTER
@_JSON
def demo(jobs: int, days: int, seed: int, out: str, master: str | None, *, as_json: bool) -> None:
    """Make up a history with incidents in it, and see what the pipeline finds.

    Starts a PostgreSQL in a temporary directory. Nothing of it stays, except the report; PGJQ_URL is not looked at.

    \b
    Examples:
      pgjq pipeline demo
      pgjq pipeline demo --jobs 100000 --out /tmp/report.html
    """  # noqa: D301
    console = Console(stderr=True)
    with _spark_extra():
        from pgjq.spark.pipeline.extract import Source
        from pgjq.spark.pipeline.history import History, make_history
        from pgjq.spark.requirements import check_java
    _check_out(Path(out))
    check_java()  # Before a minute is spent on a history that Spark could not read.
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with throwaway_directory("pgjq-pipeline-") as home:
        with EmbeddedServer.start(Path(home, "postgres"), settings=_THROWAWAY) as server:
            migrate(server.conninfo)
            with Steps(console) as steps:
                steps.begin("history")
                history = History(midnight, jobs, days, seed)
                made = make_history(server.conninfo, history, lambda done, of: steps.tell(f"{done} of {of} days"))
                steps.tell(f"{made:,} jobs in {days} days")
            summary = _run(console, Source(server.conninfo), str(Path(home, "lake")), master)
        _write_report(str(Path(home, "lake")), Path(out))
    _print(summary, as_json=as_json, report=str(Path(out).resolve()))


def read_since(text: str, now: datetime) -> datetime:
    """Read a point in time: ISO 8601, by default in UTC, or a duration before now."""
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            return now - timedelta(**{_UNITS[unit]: int(number)})
        read = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ValidationError(
            f"--since must be a date such as 2026-08-01, a point in time such as 2026-08-01T12:00+02:00,"
            f" or an age such as 30d, 12h or 8w, not {text!r}"
        ) from error
    return read if read.tzinfo else read.replace(tzinfo=UTC)


class Steps:
    """The steps of a run: in a terminal a live line and a line per finished step; else nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(pulse_style="cyan"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: Any = None
        self._step = ""
        self._detail = ""
        self._rows = 0
        self._begun = 0.0

    def begin(self, step: str) -> None:
        self._finish()
        self._step, self._detail, self._rows, self._begun = step, "", 0, time.monotonic()
        self._task = self._progress.add_task(step, total=None)

    def count(self, rows: int) -> None:
        self._rows += rows
        self.tell(f"{self._rows:,} endings")

    def tell(self, what: str) -> None:
        """Show the progress of a step."""
        self._detail = what
        if self._task is not None:
            self._progress.update(self._task, description=f"{self._step}: {what}")

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
            if self._console.is_terminal:
                took = f"{time.monotonic() - self._begun:6.1f} s"
                self._console.print(f"[green]✓[/] {self._step:<10} {took}  {self._detail}", highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._finish()
        self._progress.stop()


def _run(console: Console, source: Source, lake: str, master: str | None) -> Summary:
    with _spark_extra():
        from pgjq.spark.pipeline.quality import QualityError
        from pgjq.spark.pipeline.run import check_source
        from pgjq.spark.pipeline.run import run as run_pipeline
        from pgjq.spark.pipeline.session import spark_session
    check_source(source)
    try:
        with Steps(console) as steps:
            steps.begin("spark")
            with spark_session(master) as spark:
                return run_pipeline(spark, source, lake, steps)
    except QualityError as error:
        _show_rows(console, error)
        raise


def _write_report(lake: str, out: Path) -> int:
    with _spark_extra():
        from pgjq.spark.pipeline.lake import Lake
        from pgjq.spark.report.figures import read_figures
        from pgjq.spark.report.page import write_page
    _check_out(out)
    page = write_page(read_figures(Lake.open(lake))).encode()
    out.write_bytes(page)
    return len(page)


def _check_out(out: Path) -> None:
    if out.is_dir() or not out.parent.is_dir():
        raise ValidationError(f"--out must be a file in a directory that exists, not {out}")


def _print(summary: Summary, *, as_json: bool, **more: str) -> None:
    told = asdict(summary) | more
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(f"read {summary.read:,} endings, measured {summary.days_measured:,} days")
    click.echo(f"the lake has {summary.jobs:,} endings of {summary.days:,} days")
    click.echo(
        f"{summary.anomalies:,} anomalies; {summary.disagreements:,} queues whose definition disagrees with advice"
    )
    for name, value in more.items():
        click.echo(f"{name}: {value}")


def _show_rows(console: Console, error: QualityError) -> None:
    """Show the violating rows, before the error message explains them."""
    table = Table(title=f"{len(error.rows)} of {error.count} rows", title_justify="left")
    for name in error.rows[0]:
        table.add_column(name, overflow="fold")
    for row in error.rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table, markup=False)


@contextmanager
def _spark_extra() -> Generator[None]:
    """Turn a missing dependency of the extra into an error with the install command."""
    from pgjq.errors import MissingExtraError

    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError("spark") from error
