"""The pipeline over a made-up history of three months: the first run, and a second one with one per cent more.

Both are set against numbers that were promised. The first is timed from a session that is there to a lake that is
published. A second run must read what is new and nothing else, which is counted: endings read, over those that are new.
Java's own processor time is told beside the wall clock, because on a machine with other work on it the clock measures
that work.
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.databases import migrated_database, opened
from benchmarks.measure import Finding, Scale, against_number
from pgjq.blocking import drive
from pgjq.lease import LeasePolicy
from pgjq.options import DEFAULT_SETTINGS, Submission
from pgjq.outcome import Completed
from pgjq.spark.pipeline.demo_history import History, make_history
from pgjq.spark.pipeline.extract import Source
from pgjq.spark.pipeline.run import NoProgress, run
from pgjq.spark.pipeline.session import spark_session
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgjq.embedded import EmbeddedServer

WHOLE_SECONDS = 60.0
CLAIM = 1_000
MASTER = "local[2]"


class Stopwatch(NoProgress):
    """Prints how long each step took, and how much of the processor Java had for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._java = spark.sparkContext._jvm.java.lang.ProcessHandle.current()  # noqa: SLF001  (there is no other way)
        self._step = ""
        self._begun = (0.0, 0.0)

    def begin(self, step: str) -> None:
        now = (time.perf_counter(), self._java.info().totalCpuDuration().get().toMillis() / 1000)
        if self._step:
            wall, processor = (after - before for after, before in zip(now, self._begun, strict=True))
            print(f"  {self._step:<10} {wall:6.1f} s, of Java's processor time {processor:6.1f} s")
        self._step, self._begun = step, now


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Make a history, run over it, add to it, and run again."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    with (
        migrated_database(server, "pipeline") as conninfo,
        tempfile.TemporaryDirectory(prefix="pgjq-bench-lake-") as home,
        spark_session(MASTER) as spark,
    ):
        begun = time.perf_counter()
        made = make_history(conninfo, History(midnight, scale.spark_rows))
        print(f"  made up {made:,} jobs in {time.perf_counter() - begun:.1f} s")
        lake = str(Path(home, "lake"))
        whole, first = _timed(spark, conninfo, lake)
        assert first == made
        new = _end_more(conninfo, made // 100)
        again, second = _timed(spark, conninfo, lake)
    seconds = f"the whole pipeline over {made:,} jobs"
    return [
        against_number([whole], WHOLE_SECONDS, what=seconds, unit="s", side="at most"),
        against_number([again], WHOLE_SECONDS, what=f"a second run with {new:,} new ones", unit="s", side="at most"),
        against_number([float(second)], float(new), what="endings read by it", unit="jobs", side="at most"),
    ]


def _timed(spark: SparkSession, conninfo: str, lake: str) -> tuple[float, int]:
    watch = Stopwatch(spark)
    begun = time.perf_counter()
    summary = run(spark, Source(conninfo), lake, watch)
    watch.begin("")
    return time.perf_counter() - begun, summary.read


def _end_more(conninfo: str, count: int) -> int:
    """Run so many jobs more, as a worker would."""
    with opened(conninfo) as storage:
        operations = storage.operations("sync")
        payload, task = b'{"task": "send_receipt"}', "send_receipt"
        jobs = [Submission(f"more-{n}", payload, DEFAULT_SETTINGS, task) for n in range(count)]
        drive(operations.enqueue("mail", jobs))
        ended = 0
        while claimed := drive(operations.claim(["mail"], worker="mail-1", limit=CLAIM, policy=LeasePolicy())):
            drive(operations.settle([Settlement(job.lease, Completed(b"1")) for job in claimed]))
            ended += len(claimed)
    assert ended == count
    return ended
