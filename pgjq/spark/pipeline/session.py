"""The Spark session of a command, by default on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from pgjq.spark.requirements import check_java

if TYPE_CHECKING:
    from collections.abc import Generator

HERE: Final = "local[*]"


@contextmanager
def spark_session(master: str | None) -> Generator[SparkSession]:
    """Yield a Spark session for the block; an existing one is used, and stays.

    The master that spark-submit has set is used.
    """
    check_java()
    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    # Before Java starts: its Python workers must be this Python, which has their imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or SparkConf().get("spark.master") or HERE
    builder = SparkSession.builder.master(master).appName("pgjq pipeline")
    for name, value in _settings(master).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _settings(master: str) -> dict[str, str]:
    settings = {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    if not master.startswith("local"):
        return settings
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return settings | {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
