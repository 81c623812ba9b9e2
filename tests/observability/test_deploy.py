"""The files in deploy/: queries against real scrapes, alerts that fire, manifests that name what exists.

No Grafana, systemd or Kubernetes runs here: files are parsed. Queries are evaluated by `promql.py`; where Prometheus is
installed, `test_prometheus_server.py` evaluates them by it, too.
"""

from __future__ import annotations

import configparser
import json
import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml

import pgjq
from pgjq.blocking import drive
from pgjq.cli import main
from pgjq.lease import LeasePolicy
from pgjq.prometheus import Collector, WorkerCollector
from pgjq.storage.workers import Registration
from pgjq.testing.clock import PostgresClock
from pgjq.worker.measurements import Measurements
from tests.observability.promql import History
from tests.observability.scraping import scrape

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "pgjq.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]


class Site:
    """A database with a queue, and its scrapes."""

    def __init__(self, database: str) -> None:
        self.clock = PostgresClock(database)
        self.database = database
        self.storage = pgjq.PostgresStorage(database)
        self.client = pgjq.Client(self.storage)
        self.history = History()
        self.measurements = Measurements()
        self._at = 0.0

    def work(self, *payloads: str) -> None:
        """Run jobs; those of "bad" fail."""
        queue = pgjq.Queue("mail", storage=self.storage)
        queue.measurements = self.measurements

        @queue.execute
        def send(job: pgjq.Job[str]) -> None:
            if job.payload == "bad":
                raise pgjq.Discard(job.payload)

        results = queue.enqueue_many([(None, payload) for payload in payloads])
        with queue:
            for result in results:
                try:
                    self.client.wait("mail", result.id)
                except pgjq.JobFailedError:
                    continue

    def scrape(self, storage: Any = None, **changed: float) -> None:
        """Scrape both, a minute after the last time."""
        self._at += 60
        found = scrape(Collector(storage or self.storage))
        found |= {key: changed[key[0]] for key in found if key[0] in changed}
        self.history.add(self._at, found, job="pgjq", instance="metrics:9108")
        self.history.add(
            self._at, scrape(WorkerCollector(self.measurements)), job="pgjq-worker", instance="worker:8080"
        )

    def alive(self) -> None:
        """Register a worker that leads nothing."""
        drive(self.storage.operations("sync").worker_seen(Registration("key", "w", ("mail",), 3600.0)))

    def firing(self) -> set[str]:
        """Return the alerts whose expression answers now; `for` is not waited for."""
        return {rule["alert"] for rule in RULES if self.history.evaluate(rule["expr"])}


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    made = Site(database)
    yield made
    made.storage.close()


@pytest.fixture
def busy(site: Site) -> Site:
    """A site with two scrapes, and work of both outcomes between them."""
    site.work("good", "bad")
    site.scrape()
    site.work("good", "good", "bad")
    site.scrape()
    return site


def test_every_panel_shows_something_of_a_real_scrape(busy: Site) -> None:
    answers = {query: busy.history.evaluate(query) for _, query in QUERIES}
    assert [query for query, answer in answers.items() if not answer] == []
    assert all(math.isfinite(value) for answer in answers.values() for value in answer.values())
    ended = answers['sum by (queue) (rate(pgjq_jobs_finished_total{job="pgjq"}[5m]))']
    assert ended[frozenset({("queue", "mail")})] == pytest.approx(3 / 300)


def test_panels_do_not_overlap_and_have_units() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) >= 12


def test_no_alert_fires_without_a_reason(site: Site) -> None:
    site.work("good")
    site.scrape(pgjq_oldest_snapshot_seconds=1)
    site.work("good")
    site.scrape(pgjq_oldest_snapshot_seconds=1)
    assert site.firing() == set()


def plant(site: Site, alert: str) -> None:
    """Do what an alert is about, between scrapes."""
    match alert:
        case "PgjqExporterDown":
            away = pgjq.PostgresStorage("host=127.0.0.1 port=1 connect_timeout=1")
            site.scrape(away)
            away.close()
            return
        case "PgjqBacklogOld" | "PgjqNoWorkers":
            site.client.enqueue("mail", "waits", "good")
            if alert == "PgjqBacklogOld":
                site.alive()
            site.clock.advance(seconds=600)
        case "PgjqJobsFail":
            site.work("good", "bad")
            site.scrape()
            site.work("bad")
        case "PgjqJobsStall":
            site.client.enqueue_many("mail", [(f"{n}", "good") for n in range(5)])
            site.scrape()
            ops = site.storage.operations("sync")
            drive(ops.claim(["mail"], worker="w", limit=5, policy=LeasePolicy.visibility(5), claim_id=1))
            site.clock.advance(seconds=30)
            assert len(drive(ops.reap())) == 5
        case "PgjqLeasesLost":
            site.scrape()
            site.measurements.lease_lost()
        case "PgjqLeaderMissing":
            site.client.enqueue("mail", "a", "good", delay=3600)
            site.alive()
        case "PgjqSnapshotOld":
            site.scrape(pgjq_oldest_snapshot_seconds=1000)
            return
        case "PgjqScheduleLate":
            site.client.create_schedule("nightly", "mail", every=60)
            with psycopg.connect(site.database, autocommit=True) as connection:
                connection.execute("update pgjq.schedule set next_run_at = pgjq.now() - interval '10 minutes'")
    site.scrape()


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_an_alert_fires_for_its_reason(site: Site, alert: str) -> None:
    plant(site, alert)
    assert alert in site.firing()


def test_rules_say_what_to_do() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "action"}


def parses(words: list[str]) -> None:
    """Check the options of a command against the command line."""
    command = main.commands[words[0]]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known, words


def test_units_and_manifests_call_commands_that_exist() -> None:
    calls: list[list[str]] = []
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read(unit)
        calls.append(shlex.split(parser["Service"]["ExecStart"])[1:])
    for manifest in sorted((DEPLOY / "kubernetes").iterdir()):
        for document in yaml.safe_load_all(manifest.read_text()):
            containers = document["spec"].get("template", {}).get("spec", {}).get("containers", [])
            calls += [container["args"] for container in containers]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    calls += [service["command"] for service in services.values() if "command" in service]
    assert {call[0] for call in calls} == {"worker", "metrics", "migrate"}
    for call in calls:
        parses(call)


def test_probes_ports_and_times_of_the_worker_fit_together() -> None:
    worker, _, scaled = yaml.safe_load_all((DEPLOY / "kubernetes" / "worker.yaml").read_text())
    pod = worker["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = dict(zip(container["args"][2::2], container["args"][3::2], strict=False))
    assert pod["terminationGracePeriodSeconds"] >= int(options["--grace"].rstrip("s")) + 5
    assert container["ports"][0]["containerPort"] == int(options["--health-port"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    assert scaled["spec"]["triggers"][0]["metadata"]["targetQueryValue"] == options["--concurrency"]


def test_the_query_of_the_autoscaler_answers(database: str) -> None:
    text = (DEPLOY / "kubernetes" / "worker.yaml").read_text()
    (query,) = re.findall(r'query: "(.+)"', text)
    with psycopg.connect(database) as connection:
        assert connection.execute(query.encode()).fetchone() == (0,)
