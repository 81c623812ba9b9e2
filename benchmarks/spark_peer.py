"""What Spark's benchmarks share: a server that JDBC can reach, a session that has the driver, and its best setting.

JDBC speaks TCP, and the embedded server does not. So this starts a server of its own, from the same binaries and with
the same stock settings, that listens on 127.0.0.1; both contenders go that way. The driver is a jar: Debian's package
`libpostgresql-jdbc-java` brings one, and the environment variable PGJDBC_JAR names another.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measure import Sampler, interleave
from pgjq.embedded import EmbeddedServer
from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pyspark.sql import SparkSession

PLACES = (
    "/usr/share/java/postgresql.jar",
    "/usr/share/java/postgresql-4*.jar",
    "/usr/local/share/java/postgresql*.jar",
)


def driver_jar() -> Path:
    """Find PostgreSQL's JDBC driver."""
    if named := os.environ.get("PGJDBC_JAR"):
        return Path(named)
    for place in PLACES:
        for found in sorted(Path("/").glob(place.lstrip("/"))):
            return found
    raise PgjqError(
        "Spark's JDBC source needs PostgreSQL's driver: apt install libpostgresql-jdbc-java, or set PGJDBC_JAR"
    )


@contextmanager
def tcp_server() -> Generator[tuple[str, int]]:
    """Start a server with stock settings that listens on 127.0.0.1; yield its libpq URL and its port."""
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-tcp-") as directory:
        with EmbeddedServer.start(Path(directory)) as made:
            binaries = made.binaries
        data, port = Path(directory, "data"), _free_port()
        words = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories="
        _control(binaries, data, "start", "-l", "server.log", "-o", words)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres", port
        finally:
            _control(binaries, data, "stop", "-m", "fast")


@contextmanager
def spark_session() -> Generator[SparkSession]:
    """Start a session with two slots and the driver."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("pgjq benchmarks")
        .config("spark.jars", str(driver_jar()))
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def best(settings: Sequence[int], sampler: Callable[[int], Sampler]) -> int:
    """Find the setting that suits a contender best, here and now."""
    samples = interleave({str(setting): sampler(setting) for setting in settings}, 2)
    return max(settings, key=lambda setting: median(samples[str(setting)]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _control(binaries: Path, data: Path, *arguments: str) -> None:
    owner = data.stat()
    user, group, groups = (owner.st_uid, owner.st_gid, ()) if os.geteuid() == 0 else (None, None, None)
    subprocess.run(
        (binaries / "pg_ctl", "-D", ".", "-w", *arguments),
        cwd=data,
        user=user,
        group=group,
        extra_groups=groups,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
