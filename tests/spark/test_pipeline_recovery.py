"""Runs that were interrupted, rows that cannot be true, directories that are no lake."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

import pytest
from click.testing import CliRunner
from rich.console import Console

import pgjq
from pgjq.cli import main
from pgjq.cli.pipeline_steps import Steps
from pgjq.outcome import Completed
from pgjq.spark.pipeline.compaction import compact
from pgjq.spark.pipeline.demo_history import make_history
from pgjq.spark.pipeline.extract import Source
from pgjq.spark.pipeline.lake import Lake
from pgjq.spark.pipeline.manifest import JOBS, MERGED, QUARANTINE, Batch, Manifest
from pgjq.spark.pipeline.quality import count_sound, judge
from pgjq.spark.pipeline.run import NoProgress, run, settled
from tests.databases import new_database
from tests.spark.finished_jobs import BOOM, do, end, finish
from tests.spark.generated_history import SMALL, rounded, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pytest_postgresql.executors import NoopExecutor

    from pgjq.spark.pipeline.run import Summary

# Spark takes its time where others are at work as well.
pytestmark = pytest.mark.timeout(900)
TABLES = (JOBS, "metrics", "days", "errors", "workers", "advice", "anomalies")


class Stop(NoProgress):
    """A callback for steps that does not let one begin."""

    def __init__(self, step: str) -> None:
        self.step = step

    def begin(self, step: str) -> None:
        if step == self.step:
            raise InterruptedError(step)


class EndAfterPublishing(NoProgress):
    """Ends the run when a batch is published and nothing of it is measured."""

    def count(self, rows: int) -> None:
        raise InterruptedError(rows)


class Lakes(NamedTuple):
    """A database with a history, a lake of it whose runs were interrupted, and one that was made by a single run."""

    url: str
    interrupted: Path
    whole: Path
    made: int
    again: Summary
    never: Summary


@pytest.fixture(scope="module")
def lakes(
    server: str, template: NoopExecutor, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lakes]:
    """See `Lakes`."""
    lake, whole = (tmp_path_factory.mktemp("lakes") / name for name in ("interrupted", "whole"))
    with new_database(server, template) as url:
        made = make_history(url, SMALL)
        with pytest.raises(InterruptedError):
            run(spark, Source(url), str(lake), EndAfterPublishing())
        (lake / "jobs" / "batch=77").mkdir()
        with pytest.raises(InterruptedError):
            run(spark, Source(url), str(lake), Stop("anomalies"))
        assert Lake.open(str(lake)).manifest.measured == 0
        again = run(spark, Source(url), str(lake))
        never = run(spark, Source(url), str(whole))
        yield Lakes(url, lake, whole, made, again, never)


def test_a_run_that_was_interrupted_is_continued_by_the_next_one(lakes: Lakes) -> None:
    assert lakes.again.read == 0
    assert (lakes.again.jobs, lakes.never.jobs) == (lakes.made, lakes.made)
    for name in TABLES:
        assert rounded(table(lakes.interrupted, name)) == rounded(table(lakes.whole, name))
    assert not (lakes.interrupted / "jobs" / "batch=77").exists()


def test_the_next_run_reads_only_what_is_new_also_after_a_failover_and_measures_only_its_days(
    lakes: Lakes, spark: SparkSession, tmp_path: Path
) -> None:
    url, lake = lakes.url, tmp_path / "lake"  # A copy: others look at the lake of the made-up history alone.
    shutil.copytree(lakes.whole, lake)
    before = Lake.open(str(lake)).manifest
    with closing(pgjq.PostgresStorage(url)) as storage:
        finish(storage, "mail", [f"new-{n}" for n in range(50)])
        client = pgjq.Client(storage)
        client.enqueue("mail", "twice", {"task": "again"}, max_attempts=1)
        end(storage, "mail", BOOM)
        first = run(spark, Source(url), str(lake))
        assert (first.read, first.days_measured) == (51, 1)
        client.retry("mail", "twice")
        end(storage, "mail", Completed(b"1"))
    with Lake.writing(str(lake)) as place:  # As after a failover to a standby without the last transactions.
        place.publish(replace(place.manifest, offset=dict(place.manifest.offset or {}) | {"xid": "9" * 15}))
    with pytest.raises(pgjq.StorageError, match=r"cannot continue on this server: .* run once with --restart-from"):
        run(spark, Source(url), str(lake))
    second = run(spark, Source(url, restart=datetime.now(UTC) - timedelta(days=1)), str(lake))
    assert (second.read, second.jobs, second.quarantined) == (1, first.jobs + 1, 0)
    after = Lake.open(str(lake)).manifest
    old = {day: name for day, name in after.days.items() if day < f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"}
    assert old == dict(before.days)
    again = [row for row in table(lake, "jobs") if row["id"] == "twice"]
    assert sorted(row["state"] for row in again) == ["completed", "failed"]


def test_rows_that_cannot_be_true_go_to_quarantine_and_the_rest_is_published(
    database: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.version  # The command uses this session.
    with closing(pgjq.PostgresStorage(database)) as storage:
        finish(storage, "mail", ["good", "old", "bad"])
    do(database, "update pgjq.done d set started_at = finished_at + interval '1 s' from pgjq.body b"
                 " where b.seq = d.seq and b.id = 'bad'")  # fmt: skip
    do(database, "update pgjq.body set created_at = '2020-01-01'")
    do(database, "update pgjq.done d set finished_at = '2020-01-02', started_at = null from pgjq.body b"
                 " where b.seq = d.seq and b.id = 'old'")  # fmt: skip
    lake = tmp_path / "lake"
    code, said = invoke("run", "--url", database, "--lake", str(lake), "--since", "2026-01-01", "--json")
    assert code == 0, said
    told = json.loads(said.splitlines()[-1])
    assert {"read": 1, "jobs": 1, "days": 1, "quarantined": 1}.items() <= told.items()
    assert [row["id"] for row in table(lake, JOBS)] == ["good"]
    (bad,) = table(lake, QUARANTINE)
    assert (bad["id"], bad["violation"]) == ("bad", "finished before it started")
    assert lake.stat().st_mode & 0o777 == 0o700
    code, said = invoke("report", "--lake", str(lake), "--out", str(tmp_path / "report.html"))
    assert code == 0, said
    assert "finished before it started" in (tmp_path / "report.html").read_text(encoding="utf-8")
    # Ninety days later, with an ending: the old day leaves the lake, and so does what was wrong on it.
    moved = Lake.open(str(lake)).manifest.since("9999-01-01")
    assert (moved.batches, moved.days, moved.newest) == ((), {}, 0)


def test_an_ending_that_comes_twice_is_kept_once(spark: SparkSession) -> None:
    times = ", ".join(f"{name} timestamp" for name in ("created_at", "started_at", "finished_at"))
    schema = f"seq long, queue string, id string, state string, {times}"
    at = spark.sql("select timestamp '2026-01-01' as t").collect()[0].t
    batch = spark.createDataFrame([(1, "q", "a", "completed", at, at, at)], schema)
    dated = batch.selectExpr("*", "to_date(finished_at) as date")
    twice = dated.union(dated)
    known = batch.select("seq", "finished_at")
    assert count_sound(dated, None) == {"2026-01-01": 1}
    assert (count_sound(twice, None), count_sound(dated, known)) == (None, None)
    said = {row.violation for row in judge(twice, None).collect()}
    assert said == {None, "counted twice: the same ending came more than once"}
    assert [row.violation for row in judge(dated, known).collect()] == [
        "counted twice: this ending is in the lake already"
    ]


def test_many_batches_become_one_and_nothing_else_changes(lakes: Lakes, spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(lakes.whole, lake)
    with Lake.writing(str(lake)) as place:  # As if each day had come by itself, and some more than once.
        (batch,) = place.manifest.batches
        days = list(batch.days.items())
        parts: list[Batch] = []
        for n in range(MERGED):
            day, rows = days[n % len(days)]
            part = Batch(f"batch={n}x", (n, n), {day: rows} if n < len(days) else {})
            if part.days:
                shutil.copytree(lake / JOBS / batch.name / f"date={day}", lake / JOBS / part.name / f"date={day}")
            parts.append(part)
        place.publish(replace(place.manifest, batches=tuple(parts), measured=len(parts), newest=77))
    before = rounded(table(lake, JOBS))
    with Lake.writing(str(lake)) as place, settled(spark):
        assert compact(spark, place, print) == MERGED
        assert (place.manifest.newest, place.manifest.measured, len(place.manifest.batches)) == (77, 1, 1)
    assert rounded(table(lake, JOBS)) == before
    assert [path.name for path in (lake / JOBS).iterdir()] == [f"batch={MERGED - 1}x+1"]


def test_levels_of_merged_batches_keep_their_number_small() -> None:
    manifest = Manifest()
    for number in range(MERGED * MERGED + 5):
        manifest = manifest.with_batch(Batch(f"batch={number}", (number, number), {"2026-01-01": 1}))
        manifest = manifest.with_run("run=1", [])
        while parts := manifest.mergeable():
            merged = Batch(f"{parts[-1].name}+", (0, number), {"2026-01-01": len(parts)}, 0, parts[-1].level + 1)
            manifest = manifest.with_merged(merged, parts)
    assert [batch.level for batch in manifest.batches] == [2, *[0] * 5]
    assert manifest.newest == MERGED * MERGED + 4


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pipeline", *words])
    return result.exit_code, result.output


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path, database: str) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    code, said = invoke("run", "--url", database, "--lake", str(tmp_path))
    assert code == 2
    assert "is not a lake and not empty: it holds thesis.tex" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "manifest.json").write_text('{"name": "an app"}')
    code, said = invoke("run", "--url", database, "--lake", str(tmp_path))
    assert (code, "is not the manifest of a lake" in said) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "thesis.tex"]


@pytest.mark.parametrize("since", ["yesterday", "30x", "", "-3d", "99999999999w"])
@pytest.mark.parametrize("option", ["--since", "--restart-from"])
def test_a_time_that_is_none_is_refused_with_examples(option: str, since: str, tmp_path: Path) -> None:
    code, said = invoke("run", "--url", "postgresql://x", "--lake", str(tmp_path / "l"), option, since)
    assert code == 2
    assert f"{option} must be a date such as 2026-08-01" in said.replace("\n", " ")
    assert not (tmp_path / "l").exists()


def test_a_database_without_the_schema_is_told_before_java_starts(empty_database: str, tmp_path: Path) -> None:
    code, said = invoke("run", "--url", empty_database, "--lake", str(tmp_path / "lake"))
    assert (code, "pgjq migrate" in said) == (1, True)
    assert not (tmp_path / "lake").exists()


def test_without_java_the_message_says_how_to_install_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    code, said = invoke("run", "--url", database, "--lake", str(tmp_path / "lake"))
    assert (code, "openjdk-17" in said) == (1, True)
    assert not (tmp_path / "lake").exists()
    code, said = invoke("demo", "--out", str(tmp_path / "report.html"))
    assert (code, "openjdk-17" in said) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_do_not_write_to_one_lake(tmp_path: Path) -> None:
    place = str(tmp_path / "lake")
    with Lake.writing(place), pytest.raises(pgjq.StorageError, match="another run"), Lake.writing(place):
        pass


@pytest.mark.parametrize(("before", "after"), [(None, 0o700), (0o755, 0o750), (0o2777, 0o770)])
def test_others_cannot_read_a_lake(before: int | None, after: int, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    if before is not None:
        place.mkdir()
        place.chmod(before)
    with Lake.writing(str(place)):
        pass
    assert place.stat().st_mode & 0o777 == after
    place.chmod(0o755)  # Opened later, by hand: a run leaves that alone.
    with Lake.writing(str(place)):
        pass
    assert place.stat().st_mode & 0o777 == 0o755


def test_what_a_desktop_leaves_in_a_lake_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with Lake.writing(str(place)):
        (place / JOBS / "batch=3").mkdir(parents=True)
        (place / JOBS / ".DS_Store").write_text("a desktop's")
    with Lake.writing(str(place)):
        assert [path.name for path in (place / JOBS).iterdir()] == [".DS_Store"]


def test_steps_are_told_on_a_terminal_and_nowhere_else() -> None:
    for terminal in (True, False):
        told = StringIO()
        with Steps(Console(file=told, force_terminal=terminal)) as steps:
            steps.begin("extract")
            steps.count(1_000)
            steps.count(500)
            steps.begin("metrics")
        assert ("extract" in told.getvalue(), "1,500 endings" in told.getvalue()) == (terminal, terminal)


def test_a_report_of_no_lake_says_what_makes_one(tmp_path: Path) -> None:
    code, said = invoke("report", "--lake", str(tmp_path), "--out", str(tmp_path / "r.html"))
    assert (code, "pgjq pipeline run" in said) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_the_demo_makes_a_history_runs_everything_and_leaves_a_report(tmp_path: Path, spark: SparkSession) -> None:
    assert spark.version
    out = tmp_path / "report.html"
    code, said = invoke("demo", "--jobs", "4000", "--days", "14", "--out", str(out), "--json")
    assert code == 0, said
    told = json.loads(said.splitlines()[-1])
    assert told["report"] == str(out)
    assert told["read"] == told["jobs"] > 3000
    assert told["days"] == 14
    assert "<h3>mail: run time</h3>" in out.read_text(encoding="utf-8")
