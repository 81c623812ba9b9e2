"""One Spark session for all tests that need one: starting it takes ten seconds, and the first query a few more."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose tasks are tried three times, with an event log to look for secrets in."""
    # Before the JVM starts: its Python workers are to be this very Python, which has what they import.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    events = tmp_path_factory.mktemp("spark-events")
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("pgjq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.sql.warehouse.dir", tmp_path_factory.mktemp("warehouse").as_uri())
        .config("spark.log.level", "ERROR")
        # Queries here are short: what the optimizing compiler would gain on them, it costs several times over.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with Spark more time: each of its queries starts processes, which takes long on a busy machine.

    And keep them together, if several processes share the tests: one session is enough.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(400))
            item.add_marker(pytest.mark.xdist_group("spark"))
