"""Processor time of commands until they are of use: `pgjq worker` until it is ready, and `pgjq --help`.

Each runs in a new process. The worker serves one task of a module and is ready when its probe says so; what it has used
by then is read from the kernel. Bytecode is kept, as in an installation.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError

from benchmarks.databases import migrated_database
from benchmarks.measure import Finding, Scale, against_number, interleave

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.embedded import EmbeddedServer

WORKER_SECONDS = 0.6
HELP_SECONDS = 0.15
LOOK_SECONDS = 0.005
MODULE = """
import os
import pgjq

queue = pgjq.Queue("bench", storage=pgjq.PostgresStorage(os.environ["PGJQ_URL"]))


@queue.task
def nothing() -> None: ...
"""


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both by turns."""
    with migrated_database(server, "start") as conninfo, tempfile.TemporaryDirectory() as directory:
        Path(directory, "bench_tasks.py").write_text(MODULE, encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": directory, "PGJQ_URL": conninfo}
        contenders = {"worker": lambda: _until_ready(environment), "help": lambda: _help(environment)}
        samples = interleave(contenders, scale.rounds)
    return [
        against_number(samples["worker"], WORKER_SECONDS, what="pgjq worker until ready", unit="s", side="at most"),
        against_number(samples["help"], HELP_SECONDS, what="pgjq --help", unit="s", side="at most"),
    ]


def _help(environment: dict[str, str]) -> float:
    before = _children()
    subprocess.run([sys.executable, "-m", "pgjq", "--help"], env=environment, stdout=subprocess.DEVNULL, check=True)
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _until_ready(environment: dict[str, str]) -> float:
    with _worker(environment) as (worker, port):
        while not _is_ready(port):
            assert worker.poll() is None, "the worker has ended"
            time.sleep(LOOK_SECONDS)
        user, system = Path(f"/proc/{worker.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _worker(environment: dict[str, str]) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    port = 20_000 + os.getpid() % 20_000
    command = [sys.executable, "-m", "pgjq", "worker", "bench_tasks", "--health-port", str(port)]
    worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield worker, port
    finally:
        worker.terminate()
        worker.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1) as answer:
            return answer.status == 200
    except (URLError, OSError):
        return False
