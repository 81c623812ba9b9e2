"""`pgjq pipeline`: turn the history of jobs into tables, advice and a report, with Spark."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pgjq.cli.open_database import database
from pgjq.cli.pipeline_steps import Steps
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import throwaway_directory
from pgjq.errors import MissingExtraError, ValidationError
from pgjq.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.spark.pipeline.extract import Source
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
@click.option(
    "--restart-from",
    metavar="TIME",
    help="After a failover or a restore that lost endings: read again what ended from then on, such as 12h.",
)
@click.option(
    "--delta", metavar="URL", help="Also keep the tables there as Delta Lake: a directory, s3://…, and so on."
)
@click.option("--keep", help="Remove days from the lake that ended longer ago, such as 400d; default: none.")
@_MASTER
@_JSON
def run(
    *,
    url: str | None,
    schema: str,
    lake: str,
    since: str | None,
    restart_from: str | None,
    keep: str | None,
    delta: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Copy jobs that ended since the last run to a lake, and measure them.

    Only new endings are read, and only days that they touch are measured again. The next run continues one that was
    killed. Rows of history that cannot be true go to the table quarantine, with the reason.

    \b
    Examples:
      pgjq pipeline run --url postgresql://localhost/app --lake jobs.lake
      pgjq pipeline run --lake /mnt/jobs.lake --master spark://head:7077 --delta s3://warehouse/jobs --keep 400d
    """  # noqa: D301
    begins, restart = read_since("--since", since), read_since("--restart-from", restart_from)
    kept = None if keep is None else _read_age("--keep", keep)
    with _spark_extra():
        from pgjq.spark.pipeline.extract import Source
        from pgjq.spark.pipeline.lake import Lake
    Lake.check(lake)  # Before a server or Java is started.
    with database(url) as conninfo:
        source = Source(conninfo, schema, begins, restart)
        summary = _run(Console(stderr=True), source, lake, master, keep=kept, delta=delta)
    _print(summary, as_json=as_json)


@pipeline.command()
@_LAKE
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="Where the page goes.")
@click.option(
    "--slo", multiple=True, metavar="QUEUE=PERCENT", help="Share of jobs that must complete; * is for all others."
)
@click.option("--web", metavar="URL", help="Address of pgjq web, for links to jobs.")
@click.option("--check", is_flag=True, help="Exit with 1 if a target is missed.")
@_JSON
def report(*, lake: str, out: str, slo: tuple[str, ...], web: str | None, check: bool, as_json: bool) -> None:
    """Write a report of a lake: one page that needs no network, with what to do first.

    \b
    Examples:
      pgjq pipeline report --lake jobs.lake --out report.html
      pgjq pipeline report --lake jobs.lake --slo mail=99.9 --slo '*=99' --web https://jobs.example.com
      pgjq pipeline report --lake jobs.lake --check --json
    """  # noqa: D301
    told = _write_report(lake, Path(out), slo, web)
    click.echo(json.dumps(told) if as_json else f"wrote {out}")
    for one in () if as_json else told["findings"]:
        click.echo(f"- {one['title']}: {one['command']}")
    if check and told["missed"]:
        raise click.exceptions.Exit(1)


@pipeline.command()
@click.option(
    "--jobs", type=click.IntRange(1000, 20_000_000), default=100_000, show_default=True, help="How many, about."
)
@click.option("--days", type=click.IntRange(14, 730), default=91, show_default=True, help="On how many days.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Another one, another history."
)
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="Where the report goes.")
@_MASTER
@_JSON
def demo(jobs: int, days: int, seed: int, out: str, master: str | None, *, as_json: bool) -> None:
    """Generate a history with incidents, and see what the pipeline finds.

    Starts a PostgreSQL in a temporary directory. Nothing of it stays, except the report; PGJQ_URL is ignored.

    \b
    Examples:
      pgjq pipeline demo
      pgjq pipeline demo --jobs 100000 --out /tmp/report.html
    """  # noqa: D301
    console = Console(stderr=True)
    with _spark_extra():
        from pgjq.spark.pipeline.demo_history import History, make_history
        from pgjq.spark.pipeline.extract import Source
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


def read_since(option: str, text: str | None) -> datetime | None:
    """Read a point in time: ISO 8601, by default in UTC, or a duration before now."""
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal():
            return datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(number)})
        read = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ValidationError(
            f"{option} must be a date such as 2026-08-01, a point in time such as 2026-08-01T12:00+02:00,"
            f" or an age such as 30d, 12h or 8w, not {text!r}"
        ) from error
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _read_age(option: str, text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS and number.isdecimal() and int(number):
            return timedelta(**{_UNITS[unit]: int(number)})
    except OverflowError:
        pass
    raise ValidationError(f"{option} must be an age such as 400d or 52w, not {text!r}")


def _run(console: Console, source: Source, lake: str, master: str | None, **options: Any) -> Summary:
    with _spark_extra():
        from pgjq.spark.pipeline.run import check_source
        from pgjq.spark.pipeline.run import run as run_pipeline
        from pgjq.spark.pipeline.session import spark_session
    check_source(source)
    with Steps(console) as steps:
        steps.begin("spark")
        with spark_session(master) as spark:
            return run_pipeline(spark, source, lake, steps, **options)


def _write_report(lake: str, out: Path, slo: tuple[str, ...] = (), web: str | None = None) -> dict[str, Any]:
    """Write the page; return its verdict and figures, for `--json`."""
    with _spark_extra():
        from pgjq.spark.pipeline.lake import Lake
        from pgjq.spark.report.page import Report, write_page
        from pgjq.spark.report.report_data import read_figures
        from pgjq.spark.report.slo import read_targets
    _check_out(out)
    if web is not None and not web.startswith(("http://", "https://")):
        raise ValidationError(f"--web must be an address such as https://jobs.example.com, not {web!r}")
    report = Report(read_figures(Lake.open(lake)), read_targets(slo), web)
    page = write_page(report).encode()
    out.write_bytes(page)
    return {
        "report": str(out.resolve()),
        "bytes": len(page),
        "missed": [one.queue for one in report.objectives() if one.is_missed],
        "burn_rates": {one.queue: one.burns for one in report.objectives()},
        "findings": [one.as_json() for one in report.findings()],
    }


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
    if summary.quarantined:
        click.echo(f"{summary.quarantined:,} rows of history cannot be true and are in the table quarantine")
    for name, value in more.items():
        click.echo(f"{name}: {value}")


@contextmanager
def _spark_extra() -> Generator[None]:
    """Turn a missing dependency of the extra into an error with the install command."""
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError("spark") from error
