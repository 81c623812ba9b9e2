"""On a cluster of several machines, which may run a task on two of them at once, everything is as it is on one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import QUICK_JAVA, cluster, environment
from tests.spark.finished_jobs import ask

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 1000
# What a user's own script does. Its functions go to the executors.
DRIVER = """
import json, os, sys, time
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark import TaskContext
from pyspark.sql import SparkSession
import pgjq.spark
from pgjq.spark.pipeline.extract import Source
from pgjq.spark.pipeline.run import run

url, master, place, count, java = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5]
settings = {
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2", "spark.ui.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.log.level": "ERROR",
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "100ms",
    "spark.driver.extraJavaOptions": java, "spark.executor.extraJavaOptions": java,
    "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
pgjq.spark.register(spark)

def hesitate(batches):
    task = TaskContext.get()
    for batch in batches:
        yield batch
    if task.partitionId() == 1 and task.attemptNumber() == 0:
        time.sleep(3600)

frame = spark.range(0, count, 1, 2).selectExpr("string(id) as id", "to_json(named_struct('n', id)) as payload")
frame = frame.mapInArrow(hesitate, frame.schema)
frame.write.format("pgjq").options(url=url, queue="heavy").mode("append").save()

processed = pgjq.spark.process(spark, "heavy", lambda job: job.payload["n"], url=url, concurrency=4)
history = spark.read.format("pgjq").options(url=url).load().collect()

endings = spark.readStream.format("pgjq").options(url=url, columns="id", numPartitions=2).load()
endings = endings.writeStream.format("parquet").option("checkpointLocation", place + "/checkpoint")
endings.trigger(availableNow=True).start(place + "/endings").awaitTermination()
streamed = spark.read.parquet(place + "/endings").distinct().count()

summary = run(spark, Source(url), place + "/lake")
told = [processed.completed, streamed, summary.read, summary.jobs]
print(json.dumps([told, sorted(json.loads(row.result) for row in history)]))
spark.stop()
"""


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("java")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of their own, and not many")
def test_a_cluster_writes_runs_reads_streams_and_measures_every_job_once(database: str, tmp_path: Path) -> None:
    """The first attempt of the write's second task reads all there is and then never ends: Spark runs another one."""
    with cluster(tmp_path) as master:
        command = (sys.executable, "-c", DRIVER, database, master, str(tmp_path), str(JOBS), " ".join(QUICK_JAVA))
        said = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout.splitlines()[-1]) == [[JOBS] * 4, list(range(JOBS))]
    assert ask(database, "select stage from pgjq.stages()") == []
