"""The lake as Delta tables: the same rows, nothing twice whatever was killed, and older versions to go back to."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import pgjq
from pgjq.spark.pipeline.delta import publish
from pgjq.spark.pipeline.lake import Lake
from pgjq.spark.pipeline.manifest import JOBS, QUARANTINE, Batch, Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("delta_runtime")
AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class HandmadeLake:
    """A lake whose files are written here, as Spark writes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = Manifest()

    def write(self, table: str, directory: str, rows: Sequence[Mapping[str, Any]]) -> None:
        place = self.root / table / directory
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(list(rows)), place / "part-0.parquet")

    def add(self, number: int, day: str, *ids: str, level: int = 0, first: int | None = None) -> Batch:
        batch = Batch(
            f"batch={number}.{level}", (number if first is None else first, number), {day: len(ids)}, 0, level
        )
        self.write(JOBS, f"{batch.name}/date={day}", [{"id": job_id, "finished_at": AT, "on": ["w"]} for job_id in ids])
        return batch

    def measure(self, *days: str) -> None:
        name = f"run={self.manifest.runs + 1}"
        for day in days:
            self.write("days", f"{name}/date={day}", [{"queue": "mail"}])
        self.write("advice", name, [{"queue": "mail", "runs": self.manifest.runs}])
        self.manifest = self.manifest.with_run(name, days)

    def publish(self, place: Path) -> dict[str, int]:
        return publish(Lake(self.root, self.manifest), str(place))


def ids(place: Path, version: int | None = None) -> list[str]:
    rows = DeltaTable(str(place / JOBS), version=version).to_pyarrow_table().to_pylist()
    assert all((row["finished_at"], row["on"]) == (AT, ["w"]) for row in rows)
    return sorted(row["id"] for row in rows)


def test_delta_tables_follow_the_lake_and_keep_their_past(tmp_path: Path) -> None:
    lake, place = HandmadeLake(tmp_path / "lake"), tmp_path / "delta"
    lake.manifest = lake.manifest.with_batch(lake.add(0, "2026-01-01", "one", "two"))
    lake.measure("2026-01-01")
    assert lake.publish(place) == {JOBS: 0, "days": 0, "advice": 0}
    assert lake.publish(place) == {JOBS: 0, "days": 0, "advice": 0}  # Again, as after a kill: nothing happens.

    lake.manifest = lake.manifest.with_batch(lake.add(1, "2026-01-02", "three"))
    lake.measure("2026-01-02")
    assert lake.publish(place) == {JOBS: 1, "days": 1, "advice": 1}
    assert (ids(place), ids(place, version=0)) == (["one", "three", "two"], ["one", "two"])  # Time travel.
    days = DeltaTable(str(place / "days")).to_pyarrow_table().to_pylist()
    assert sorted((row["date"], row["queue"]) for row in days) == [
        (date(2026, 1, 1), "mail"),
        (date(2026, 1, 2), "mail"),
    ]
    assert DeltaTable(str(place / "advice")).to_pyarrow_table()["runs"].to_pylist() == [1]
    parts = DeltaTable(str(place / JOBS)).partitions()
    assert sorted(part["date"] for part in parts) == ["2026-01-01", "2026-01-02"]


def test_batches_that_were_merged_with_known_ones_come_once(tmp_path: Path) -> None:
    lake, place = HandmadeLake(tmp_path / "lake"), tmp_path / "delta"
    lake.manifest = lake.manifest.with_batch(lake.add(0, "2026-01-01", "one"))
    lake.publish(place)
    second = lake.add(1, "2026-01-01", "two")
    lake.manifest = lake.manifest.with_batch(second)
    merged = lake.add(1, "2026-01-01", "one", "two", level=1, first=0)
    lake.manifest = lake.manifest.with_merged(merged, lake.manifest.batches)
    lake.publish(place)
    assert ids(place) == ["one", "two"]


def test_days_that_the_lake_forgets_leave_the_tables_and_bad_rows_are_one_of_them(tmp_path: Path) -> None:
    lake, place = HandmadeLake(tmp_path / "lake"), tmp_path / "delta"
    bad = Batch("batch=0s", (0, 0), {"2026-01-01": 1}, 1)
    lake.write(JOBS, "batch=0s/date=2026-01-01", [{"id": "old", "finished_at": AT, "on": ["w"]}])
    lake.write(QUARANTINE, "batch=0s", [{"id": "bad", "violation": "finished before it started"}])
    lake.manifest = lake.manifest.with_batch(bad).with_batch(lake.add(1, "2026-01-02", "new"))
    lake.measure("2026-01-01", "2026-01-02")
    lake.publish(place)
    assert DeltaTable(str(place / QUARANTINE)).to_pyarrow_table()["id"].to_pylist() == ["bad"]
    assert ids(place) == ["new", "old"]
    lake.manifest = lake.manifest.since("2026-01-02")
    lake.publish(place)
    assert ids(place) == ["new"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lake = HandmadeLake(tmp_path / "lake")
    lake.measure()
    with pytest.raises(pgjq.StorageError, match="could not be written"):
        lake.publish(tmp_path / "file")
