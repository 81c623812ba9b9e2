"""A cluster of Spark's own on this machine: a master, and workers that take themselves for machines of their own."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

MASTER = "127.0.0.1"
# Spark runs a second attempt of a task on another machine only, and tells machines apart by their addresses.
MACHINES = ("127.0.0.2", "127.0.0.3")
# What Spark's own scripts tell Java, which knows the reasons.
OPENED = (
    *("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.net", "java.base/java.nio"),
    *("java.base/java.util", "java.base/java.util.concurrent", "java.base/sun.nio.ch", "java.base/sun.util.calendar"),
)
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # For processes that live for seconds.
JAVA = (
    *("java", "-Xmx256m", *QUICK_JAVA),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
)


@contextmanager
def cluster(directory: Path) -> Generator[str]:
    """Start a cluster of two machines with one core each; yield its address."""
    address = f"spark://{MASTER}:{_free_port()}"
    with ExitStack() as stack:
        host, port = address.removeprefix("spark://").split(":")
        stack.enter_context(_process(directory, host, "master.Master", "--host", host, "--port", port))
        for machine in MACHINES:
            words = ("--host", machine, "--cores", "1", "--memory", "600M", "--work-dir", str(directory), address)
            stack.enter_context(_process(directory, machine, "worker.Worker", *words))
        yield address


def environment() -> dict[str, str]:
    """Say where Spark is, to processes that its own scripts did not start."""
    import pyspark

    home = Path(pyspark.__file__).parent
    (core,) = home.glob("jars/spark-core_*.jar")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    return os.environ | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala, "SPARK_LOCAL_IP": MASTER}


@contextmanager
def _process(directory: Path, host: str, role: str, *words: str) -> Generator[None]:
    own = environment() | {"SPARK_LOCAL_IP": host}
    command = (*JAVA, "-cp", f"{own['SPARK_HOME']}/jars/*", f"org.apache.spark.deploy.{role}", "--webui-port", "0")
    with (directory / f"{host}.log").open("wb") as log:
        process = subprocess.Popen((*command, *words), env=own, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as unheard:
        unheard.bind((MASTER, 0))
        return unheard.getsockname()[1]
