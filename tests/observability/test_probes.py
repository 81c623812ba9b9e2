"""Probes of a real worker: alive, ready, draining, without a database, and recycled."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest

import pgjq
from pgjq.probes import ProbeServer, live_page, serve_worker
from tests.cli.run_command import run, started
from tests.observability.scraping import get, parse, read

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq.worker.engine_runner import Service

SHOP = """
import os, time
import pgjq

mail = pgjq.Queue("mail", storage=pgjq.PostgresStorage(os.environ["PGJQ_URL"]), visibility_timeout=3)

@mail.execute
def send(job):
    for _ in range(600):
        if job.payload != "hold" or os.path.exists("release"):
            return os.getpid()
        time.sleep(0.05)
"""


def refusal(port: int, path: str) -> str:
    """Return the body of a 503."""
    with pytest.raises(HTTPError) as caught:
        get(port, path)
    with caught.value as error:
        assert error.code == 503
        return error.read().decode()


def test_a_worker_answers_probes_and_drains(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    client = pgjq.Client(pgjq.PostgresStorage(database))
    with started("worker", "shop", "--health-port", "0", url=database, directory=tmp_path) as worker:
        port = worker.wait_for("serving /live, /ready, /metrics")["port"]
        while run("health", "--port", str(port), url=None).exit_code:
            time.sleep(0.02)  # Until its first heartbeat.
        assert get(port, "/live") == get(port, "/ready") == "ok\n"
        client.enqueue_and_wait("mail", "a", 1, timeout=60)
        with client.subscribe("mail") as events:
            client.enqueue("mail", "b", "hold")
            assert any(event.name == "processing" for event in events)
        found = parse(get(port))
        assert read(found, "pgjq_jobs_finished_total", queue="mail", task="", outcome="completed") == 1
        assert read(found, "pgjq_in_flight", queue="mail") == 1
        worker._process.send_signal(signal.SIGTERM)
        worker.wait_for("stopping")
        while run("health", "--port", str(port), url=None).exit_code == 0:
            time.sleep(0.02)
        assert refusal(port, "/ready") == "the worker is stopping\n"
        assert run("health", "--port", str(port), "--live", url=None).exit_code == 0
        (tmp_path / "release").touch()
        assert worker._process.wait(60) == 0
    assert "no worker answers" in run("health", "--port", str(port), url=None).stderr
    status = client.get_status("mail", "b")
    assert status is not None
    assert status.state == "completed"
    client.close()


def test_the_command_needs_no_storage_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "pgjq", "health", "--port", "1"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "http.client" in loaded
    heavy = re.compile(r"\| +(psycopg|redis|rich|alembic|sqlalchemy|prometheus_client|asyncio)$", re.MULTILINE)
    assert heavy.findall(loaded) == []


def test_processes_take_ports_in_turn(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    probe = ProbeServer("127.0.0.1", 0, {})
    probe.close()
    ports = str(probe.port)
    options = ("--processes", "2", "--metrics-port", ports, "--max-jobs", "1")
    with started("worker", "shop", *options, url=database, directory=tmp_path) as worker:
        taken = {worker.wait_for("serving /metrics")["port"] for _ in range(2)}
        assert taken == {probe.port, probe.port + 1}
        began = {port: read(parse(get(port)), "process_start_time_seconds") for port in taken}
        with pgjq.Client(pgjq.PostgresStorage(database)) as client:
            client.enqueue_and_wait("mail", "a", 1, timeout=60)
        worker.wait_for("worker process has reached its limit")
        port = worker.wait_for("serving /metrics")["port"]
        assert port in taken
        assert read(parse(get(port)), "process_start_time_seconds") > began[port]
        assert worker.end() == 0


def test_a_blocked_loop_and_a_lost_storage_are_noticed(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    queue = pgjq.Queue("mail", storage=storage, visibility_timeout=3)
    queue.execute(lambda job: job.payload)
    services: list[Service] = []
    ended: list[str] = []
    worker = pgjq.Worker(queue)

    def keep(service: Service) -> object:
        services.append(service)
        return lambda: ended.append("ended")

    worker.accompany(keep)  # type: ignore[arg-type]
    serve_worker(worker, health_port=0, metrics_port=None, host="127.0.0.1")
    with worker:
        (service,) = services
        while service.obstacles():
            time.sleep(0.02)
        assert live_page(service).status == 200
        engine = service._engine
        assert engine is not None
        engine.registration._answered -= 60
        assert service.obstacles() == ["the storage has not answered for two heartbeat intervals"]
        assert service._loop is not None
        service._loop.call_soon_threadsafe(time.sleep, 0.5)
        assert not service.answers(0.01)
    assert ended == ["ended"]
    storage.close()
