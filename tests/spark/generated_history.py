"""A made-up history in a database of its own, the lake that the pipeline makes of it, and plain SQL to compare with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from pgjq.spark.pipeline.demo_history import History
from pgjq.spark.pipeline.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

# Fourteen days from a Sunday on: what goes wrong does so on a Thursday, a Monday, a Wednesday and a Friday.
PLANTED = History(ends=datetime(2026, 3, 15, tzinfo=UTC), jobs=60_000, days=14)
QUIET = History(ends=datetime(2026, 3, 15, tzinfo=UTC), jobs=60_000, days=14, incidents=False)
SMALL = History(ends=datetime(2026, 3, 15, tzinfo=UTC), jobs=1_500, days=7)

METRICS = """
select
    q.name as queue, convert_from(b.payload, 'UTF8')::jsonb ->> 'task' as task,
    date_trunc('hour', d.finished_at, 'UTC') as hour, count(*) as ended,
    count(*) filter (where d.state = 3) as completed, count(*) filter (where d.state = 4) as failed,
    count(*) filter (where d.state = 5) as cancelled, avg(d.attempts)::float8 as attempts,
    avg((d.attempts > 1)::integer)::float8 as retry_rate, avg((d.stalled > 0)::integer)::float8 as stall_rate,
    avg((d.state = 4)::integer)::float8 as failure_rate,
    avg((strpos(coalesce(d.error, ''), 'took too long') > 0)::integer)::float8 as expiry_rate,
    percentile_cont(0.5) within group (order by t.wait) as wait_p50,
    percentile_cont(0.95) within group (order by t.wait) as wait_p95,
    percentile_cont(0.99) within group (order by t.wait) as wait_p99,
    percentile_cont(0.5) within group (order by t.run) as run_p50,
    percentile_cont(0.95) within group (order by t.run) as run_p95,
    percentile_cont(0.99) within group (order by t.run) as run_p99,
    max(t.wait) as backlog_age, sum(extract(epoch from d.finished_at - d.started_at))::float8 as busy_seconds,
    count(distinct d.worker_id) as workers
from pgjq.done as d
join pgjq.body as b using (seq, queue_id)
join pgjq.queue as q on q.id = d.queue_id
cross join lateral (
    select
        case when d.attempts = 1 then extract(epoch from d.started_at - b.created_at)::float8 end as wait,
        case when d.state = 3 then extract(epoch from d.finished_at - d.started_at)::float8 end as run
) as t
group by 1, 2, 3
"""


class GeneratedHistory(NamedTuple):
    """A database with a history, and a lake made of it."""

    url: str
    lake: Path


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Round what was summed up: in which order, and so its last digit, is for Spark to choose."""
    return [{k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def read_parquet(file: str) -> list[dict[str, Any]]:
    """Read a file and close it; a dataset would close it some time later, on another thread."""
    with pq.ParquetFile(file) as parquet:
        return parquet.read().to_pylist()


def table(lake: Path, name: str) -> list[dict[str, Any]]:
    """Read a published table as it is on the disk, without Spark, in an order of its own."""
    there = Lake.open(str(lake))
    files = [str(f) for d in there.manifest.directories(name) for f in (lake / d).glob("*.parquet")]
    rows = [row for file in files for row in read_parquet(file)]
    return sorted(rows, key=lambda row: str(sorted((k, v) for k, v in row.items() if not isinstance(v, float))))
