"""The pipeline: what it measures is what SQL says, only what is new is read, and what was planted is found."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from psycopg.rows import dict_row

from pgjq.cli import main
from pgjq.spark import register
from pgjq.spark.pipeline.anomalies import find_anomalies
from pgjq.spark.pipeline.demo_history import make_history
from pgjq.spark.pipeline.extract import Source
from pgjq.spark.pipeline.jobs_table import COLUMNS, endings
from pgjq.spark.pipeline.lake import Lake
from pgjq.spark.pipeline.manifest import TABLES
from pgjq.spark.pipeline.metrics import daily, hourly
from pgjq.spark.pipeline.run import run
from tests.databases import new_database
from tests.spark.generated_history import METRICS, PLANTED, QUIET, GeneratedHistory, read_parquet, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pytest_postgresql.executors import NoopExecutor

# Spark takes its time where others are at work as well.
pytestmark = pytest.mark.timeout(900)
BEGINS = PLANTED.begins
# Where something was planted: day, hours, and what may be said about it.
SLOW = (4, 10, 12, {("billing", "run_p95"), ("search", "run_p95"), ("billing", "wait_p95")})
BURST = (8, 14, 17, {("billing", "failure_rate"), ("billing", "retry_rate")})
HANGING = (10, 18, 22, {("media", "stall_rate"), ("media", "retry_rate"), ("media", "wait_p95")})
BACKLOG = (12, 9, 13, {("mail", "ended"), ("mail", "wait_p95")})


@pytest.fixture(scope="module")
def past(
    server: str,
    template: NoopExecutor,
    spark: SparkSession,
    delta_runtime: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GeneratedHistory]:
    """A history with incidents, and its lake."""
    del delta_runtime
    with new_database(server, template) as url:
        made = make_history(url, PLANTED)
        lake = tmp_path_factory.mktemp("lakes") / "planted"
        summary = run(spark, Source(url), str(lake), delta=str(lake.with_name("delta")))
        assert summary.read == summary.jobs == made
        yield GeneratedHistory(url, lake)


def test_the_same_seed_makes_the_same_history(database: str, own_database: str) -> None:
    def make(url: str) -> list[tuple[Any, ...]]:
        make_history(url, replace_jobs(PLANTED, 500))
        with psycopg.connect(url) as connection:
            return connection.execute(
                "select b.id, b.created_at, d.started_at, d.finished_at, d.state, d.attempts, d.error"
                " from pgjq.body b join pgjq.done d using (seq) order by b.id"
            ).fetchall()

    assert make(database) == make(own_database)


def test_metrics_are_what_sql_says(past: GeneratedHistory) -> None:
    with psycopg.connect(past.url, row_factory=dict_row) as connection:
        said = {
            (r["queue"], r["task"], r["hour"]): r
            for r in connection.execute(METRICS + "having max(d.finished_at) < %s", [PLANTED.ends])
        }
    measured = {(r["queue"], r["task"], r["hour"]): r for r in table(past.lake, "metrics") if r["hour"] < PLANTED.ends}
    assert measured.keys() == said.keys()
    assert len(said) > 2000
    for key, row in said.items():
        for name, value in row.items():
            assert measured[key][name] == (
                pytest.approx(value, rel=1e-9, abs=1e-6) if isinstance(value, float) else value
            )


def test_delta_tables_are_those_of_the_lake(past: GeneratedHistory) -> None:
    for name in TABLES:
        there = past.lake.with_name("delta") / name
        rows = DeltaTable(str(there)).to_pyarrow_table().to_pylist() if there.exists() else []
        assert len(rows) == len(table(past.lake, name)), name
    days = DeltaTable(str(past.lake.with_name("delta") / "days")).to_pyarrow_table().to_pylist()
    assert {str(row.pop("date")) for row in days} == set(Lake.open(str(past.lake)).manifest.days)
    assert sorted(days, key=str) == sorted(table(past.lake, "days"), key=str)


def test_worker_skew_is_the_busiest_workers_share_over_the_average(past: GeneratedHistory) -> None:
    question = """
        select queue, day, max(n) / avg(n) from (
            select q.name as queue, (d.finished_at at time zone 'UTC')::date as day, count(*) as n
            from pgjq.done d join pgjq.queue q on q.id = d.queue_id where d.finished_at < %s
            group by 1, 2, d.worker_id) as w group by 1, 2 order by 1, 2
    """
    with psycopg.connect(past.url) as connection:
        said = [(queue, float(skew)) for queue, _, skew in connection.execute(question, [PLANTED.ends])]
    there = Lake.open(str(past.lake))
    dates = sorted(day for day in there.manifest.days if day < "2026-03-15")
    measured = {
        (row["queue"], day): row["worker_skew"]
        for day in dates
        for row in _files(past, there, "days", day)
    }  # fmt: skip
    assert [skew for _, skew in sorted(measured.items())] == pytest.approx([skew for _, skew in said])


def test_stalls_count_for_the_worker_that_they_happened_on(past: GeneratedHistory) -> None:
    with psycopg.connect(past.url) as connection:
        said = dict(connection.execute("select unnest(stalled_on), count(*) from pgjq.progress group by 1").fetchall())
    stalls: dict[str, int] = {}
    for row in table(past.lake, "workers"):
        stalls[row["worker"]] = stalls.get(row["worker"], 0) + row["stalls"]
    assert {worker: count for worker, count in stalls.items() if count} == said
    assert max(said, key=lambda worker: said[worker]) == "media-2"


def test_what_was_planted_is_found_and_nothing_else(past: GeneratedHistory) -> None:
    found = table(past.lake, "anomalies")
    for day, first, last, expected in (SLOW, BURST, HANGING, BACKLOG):
        begins, ends = (BEGINS + timedelta(days=day, hours=hour) for hour in (first, last))
        here = {(row["queue"], row["measure"]) for row in found if row["begins"] < ends and row["ends"] > begins}
        # What follows from an incident may be told or not; the incident itself must be.
        assert {one for one in expected if one[1] in ("run_p95", "failure_rate", "stall_rate", "ended")} <= here
        assert here <= expected
        found = [row for row in found if not (row["begins"] < ends and row["ends"] > begins)]
    assert found == []


def test_a_report_of_the_lake_shows_what_was_found(past: GeneratedHistory, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    told = CliRunner().invoke(main, ["pipeline", "report", "--lake", str(past.lake), "--out", str(out), "--json"])
    said = json.loads(told.output)
    assert (said["report"], said["bytes"]) == (str(out), out.stat().st_size)
    assert said["findings"][0].keys() == {"queue", "title", "why", "command", "page"}
    strict = ["pipeline", "report", "--lake", str(past.lake), "--out", str(out), "--slo", "*=99.99", "--check"]
    assert CliRunner().invoke(main, strict).exit_code == 1
    assert CliRunner().invoke(main, [*strict[:-2], "*=0", "--check"]).exit_code == 0
    page = out.read_text(encoding="utf-8")
    for queue in ("mail", "media", "billing", "search", "reports"):
        assert f"<h3>{queue}: run time</h3>" in page
    for row in table(past.lake, "anomalies"):
        assert f">{row['queue']}" in page
    assert "expire_in_seconds is 300" in page
    assert "media-2" in page


def test_a_history_in_which_nothing_happens_has_no_anomalies(database: str, spark: SparkSession) -> None:
    make_history(database, QUIET)
    register(spark)
    history = spark.read.format("pgjq").options(url=database, columns=",".join(COLUMNS)).load()
    jobs = endings(history)
    assert find_anomalies(hourly(jobs), daily(jobs)).collect() == []


def test_advice_is_twice_the_p95_and_says_which_definitions_disagree(past: GeneratedHistory) -> None:
    question = """
        select name, percentile_disc(0.95) within group (order by extract(epoch from finished_at - started_at)::float8)
        from pgjq.done join pgjq.queue q on q.id = queue_id where state = 3 and finished_at < %s group by 1
    """
    with psycopg.connect(past.url) as connection:
        said = {
            queue: 2 * p95
            for queue, p95 in connection.execute(question, [PLANTED.ends]).fetchall()
            if queue in ("mail", "reports")
        }
    advice = {row["queue"]: row for row in table(past.lake, "advice")}
    for queue, timeout in said.items():
        assert advice[queue]["visibility_timeout"] == pytest.approx(timeout, rel=0.01)
    assert "make it 900" in advice["reports"]["disagrees"][0]
    assert advice["reports"]["current_expire_in_seconds"] == 300
    assert "make it 60" in advice["mail"]["disagrees"][0]
    assert advice["search"]["disagrees"] == []


def _files(past: GeneratedHistory, lake: Lake, name: str, day: str) -> list[dict[str, Any]]:
    (directory,) = lake.manifest.directories(name, [day])
    return [row for file in (past.lake / directory).glob("*.parquet") for row in read_parquet(str(file))]


def replace_jobs(history: Any, jobs: int) -> Any:
    from dataclasses import replace

    return replace(history, jobs=jobs)
