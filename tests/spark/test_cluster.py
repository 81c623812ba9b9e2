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

url, master, count, java = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
settings = {
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2", "spark.ui.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.log.level": "ERROR",
    "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "100ms",
    "spark.driver.extraJavaOptions": java, "spark.executor.extraJavaOptions": java,
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
print(json.dumps([processed.completed, sorted(json.loads(row.result) for row in history)]))
spark.stop()
"""


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("java")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of their own, and not many")
def test_a_task_that_spark_runs_twice_enqueues_once_and_every_job_runs(database: str, tmp_path: Path) -> None:
    """The first attempt of the second task has read all there is, and then never ends: Spark runs another one."""
    with cluster(tmp_path) as master:
        command = (sys.executable, "-c", DRIVER, database, master, str(JOBS), " ".join(QUICK_JAVA))
        said = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout.splitlines()[-1]) == [JOBS, list(range(JOBS))]
    assert ask(database, "select stage from pgjq.stages()") == []
