"""One Spark session for all tests that need one: starting it takes ten seconds, and the first query a few more."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.spark.requirements import RequirementError, check_java
from tests.leaks import CHECK, Resources, ends_of
from tests.programs import missing
from tests.spark.cluster import QUICK_JAVA

if TYPE_CHECKING:
    import threading
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything goes that Spark and its Python processes say on the terminal."""
    return tmp_path_factory.mktemp("spark-log") / "stderr"


@contextmanager
def stderr_to(file: Path) -> Generator[None]:
    """Have processes that are started meanwhile write their errors to a file."""
    terminal = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@pytest.fixture(scope="session")
def java() -> None:
    """Skip tests that need Java where there is none, or one that is too old for Spark."""
    try:
        check_java()
    except RequirementError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory, spark_log: Path) -> Iterator[SparkSession]:
    """A session whose tasks are tried three times, with an event log to look for secrets in."""
    del java
    # Before the JVM starts: its Python workers are to be this very Python, which has what they import.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    events = tmp_path_factory.mktemp("spark-events")
    builder = (
        SparkSession.builder.master("local[2,3]")
        .appName("pgjq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config(
            "spark.sql.adaptive.enabled", "false"
        )  # It cuts a query into more jobs, which cost more than they gain.
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.sql.warehouse.dir", tmp_path_factory.mktemp("warehouse").as_uri())
        .config("spark.log.level", "ERROR")
        # Queries here are short: compiling them costs several times what it gains.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.extraJavaOptions", " ".join(QUICK_JAVA))
    )
    with stderr_to(spark_log):
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have delta-rs start its threads and sockets, which stay for the life of the process."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    place = str(tmp_path_factory.mktemp("delta") / "table")
    write_deltalake(place, pa.table({"n": [1]}))
    write_deltalake(place, pa.table({"n": [1]}), mode="overwrite", predicate="n = 1")
    table = DeltaTable(place)
    table.to_pyarrow_table()
    table.delete("n = 1")


@pytest.fixture(autouse=True)
def connections_of_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count what Spark keeps open between this process and Java as the session's: it is made when first needed."""
    yield
    if "spark" in request.fixturenames:
        request.config.stash[CHECK].adopt(
            _of_spark(request.getfixturevalue("spark"), request.config.stash[CHECK].new())
        )


def _of_spark(spark: SparkSession, new: Resources) -> Resources:
    context: Any = spark.sparkContext
    gateway = context._gateway
    server = gateway.get_callback_server()
    ports = {gateway.gateway_parameters.port, context._accumulatorServer.server_address[1]}
    ports |= {server.get_listening_port()} if server else set()
    threads = {thread for thread in new.threads if _runs_py4j(thread)}
    files = {file for file in new.files if any(end[1] in ports for end in ends_of(file[0]) if isinstance(end, tuple))}
    return Resources(frozenset(threads), frozenset(), frozenset(files))


def _runs_py4j(thread: threading.Thread) -> bool:
    """Tell whether a thread is inside py4j, whose threads have no names of their own."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("py4j"):
        frame = frame.f_back
    return frame is not None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests with Spark more time, and keep them in one process: one session is enough, and a JVM takes two cores.

    Marks must be there before pytest-xdist reads them, which it does in `pytest_collection_modifyitems`.
    """
    item.add_marker(pytest.mark.timeout(600))  # A busy machine starts Java and Python slowly.
    item.add_marker(pytest.mark.xdist_group("spark"))
