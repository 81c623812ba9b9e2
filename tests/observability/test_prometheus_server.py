"""Deploy files in a real Prometheus: its tool checks and evaluates them, its server scrapes and answers every panel."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml

import pgjq
from pgjq.probes import ProbeServer
from tests.cli.run_command import started
from tests.observability.scraping import get
from tests.observability.test_deploy import DEPLOY, QUERIES, RULES, Site, plant
from tests.programs import missing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

PATIENCE = 60.0
SHOP = """
import os
import pgjq

mail = pgjq.Queue("mail", storage=pgjq.PostgresStorage(os.environ["PGJQ_URL"]))

@mail.task
def receipt(order):
    if order % 5 == 0:
        raise pgjq.Discard("no such order")
"""


def program(name: str) -> str:
    """Return where a program of Prometheus is, or skip the test."""
    found = shutil.which(name)
    if found is None:
        missing("Prometheus is not installed (Debian: apt-get install prometheus)", in_ci=False)
    return found


def promtool(*arguments: str) -> str:
    """Run the tool, which has to find nothing wrong."""
    ran = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    made = Site(database)
    yield made
    made.storage.close()


def test_the_tool_accepts_configuration_and_rules() -> None:
    told = promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert f"{len(RULES)} rules found" in told


def firing(site: Site, directory: Path) -> None:
    """Check that the tool finds the same alerts firing as the tests' own evaluator; `for` is not waited for."""
    rules = [{key: value for key, value in rule.items() if key != "for"} for rule in RULES]
    (directory / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "pgjq", "rules": rules}]}))
    end = int(site.history.now)
    alert = {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{end}s"}
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(site.firing())]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": _series(name, labels), "values": _values(points, end)}
            for (name, labels), points in site.history.series.items()
        ],
        "promql_expr_test": [alert | {"exp_samples": expected}],
    }
    (directory / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]})
    )
    promtool("test", "rules", str(directory / "test.yml"))


def _series(name: str, labels: frozenset[tuple[str, str]]) -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels)) + "}"


def _values(points: list[tuple[float, float]], end: int) -> str:
    found = dict(points)
    return " ".join(repr(found[at]) if at in found else "_" for at in range(0, end + 1, 60))


@pytest.mark.parametrize("alert", ["none", *(rule["alert"] for rule in RULES)])
def test_the_tool_finds_the_alerts_firing_that_have_a_reason(site: Site, alert: str, tmp_path: Path) -> None:
    if alert == "none":
        site.work("good")
        site.scrape(pgjq_oldest_snapshot_seconds=1)
        site.work("good")
        site.scrape(pgjq_oldest_snapshot_seconds=1)
    else:
        plant(site, alert)
    assert (alert in site.firing()) == (alert != "none")
    firing(site, tmp_path)


def free_port() -> int:
    """Return a port that no process listens on."""
    probe = ProbeServer("127.0.0.1", 0, {})
    probe.close()
    return probe.port


@contextmanager
def scraping(directory: Path, targets: dict[str, int]) -> Generator[int]:
    """Run a Prometheus with the deployed rules that scrapes these ports every half second, and return its own."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    for job in config["scrape_configs"]:
        job.pop("dns_sd_configs", None)
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    server = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def ask(port: int, path: str) -> Any:
    """Return what the server answers, once it does."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return json.loads(get(port, path))["data"]
        except OSError:
            assert time.monotonic() < end, "Prometheus does not answer"
            time.sleep(0.1)


def answers(port: int, query: str) -> list[float]:
    """Return the numbers that a query answers."""
    found = ask(port, f"/api/v1/query?query={quote(query)}")["result"]
    return [float(sample["value"][1]) for sample in found]


def test_every_panel_shows_something_of_a_fleet_that_is_scraped(database: str, tmp_path: Path) -> None:
    program("prometheus")
    (tmp_path / "shop.py").write_text(SHOP)
    client = pgjq.Client(pgjq.PostgresStorage(database))
    with (
        started("worker", "shop", "--metrics-port", "0", url=database, directory=tmp_path) as worker,
        started("metrics", "--port", "0", "--max-age", "0.2s", url=database, directory=tmp_path) as exporter,
    ):
        ports = {
            "pgjq-worker": worker.wait_for("serving /metrics")["port"],
            "pgjq": exporter.wait_for("serving")["port"],
        }
        with scraping(tmp_path, ports) as port:
            orders, silent, end = 0, QUERIES, time.monotonic() + PATIENCE
            while silent:
                assert time.monotonic() < end, silent
                orders += 1
                client.enqueue("mail", f"order-{orders}", {"task": "receipt", "args": [orders]})
                time.sleep(0.2)
                found = {query: answers(port, query[1]) for query in silent}
                silent = [query for query in silent if not found[query] or not all(map(math.isfinite, found[query]))]
            rules = ask(port, "/api/v1/rules")["groups"][0]["rules"]
            while any(rule["health"] == "unknown" for rule in rules):
                rules = ask(port, "/api/v1/rules")["groups"][0]["rules"]
            assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in RULES}
    client.close()
