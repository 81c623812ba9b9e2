"""What the image and the compose file say, held against the command line and the repository; no engine is needed."""

from __future__ import annotations

import fnmatch
import re
import runpy
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pgjq.cli import main
from tests.docs.test_commands import parse

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "pgjq"}
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def test_three_workers_and_two_reapers_wait_for_one_migration() -> None:
    replicas = {name: service.get("deploy", {}).get("replicas", 1) for name, service in OURS.items()}
    assert replicas == {"migrate": 1, "worker": 3, "reaper": 2, "web": 1}
    waiting = {name for name, service in OURS.items() if "migrate" in service["depends_on"]}
    assert waiting == {"worker", "reaper", "web"}
    assert "--leader-election" in OURS["reaper"]["command"]


def test_workers_and_reapers_have_the_numbers_of_the_production_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGJQ_URL", "memory:")
    monkeypatch.setenv("HOSTNAME", "here")
    mail = runpy.run_path(str(ROOT / "examples/production.py"))["mail"]
    assert (mail.concurrency, mail.lease_policy.lease) == (10, 60)
    assert mail.worker_id.startswith("worker-here-")
    assert OURS["reaper"]["command"][2:] == [
        *("--lock-ttl", "30s"), *("--renewal-interval", "10s"), *("--acquire-retry-interval", "5s")
    ]  # fmt: skip
    assert "worker-$$HOSTNAME-" in OURS["worker"]["healthcheck"]["test"][1]


@pytest.mark.parametrize("name", OURS)
def test_a_services_command_can_be_given(name: str) -> None:
    command = OURS[name]["command"]
    assert parse(command).startswith(f"pgjq {command[0]}")


@pytest.mark.parametrize("words", [["worker"], ["reaper", "--elect"], ["migrat"]])
def test_a_command_that_does_not_exist_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(click.ClickException):
        parse(words)


def test_health_checks_ask_for_commands_that_exist() -> None:
    asked = re.findall(r'HEALTHCHECK .*CMD \["pgjq", "(\w+)"\]', DOCKERFILE)
    asked += re.findall(r"pgjq (\w+)", str(OURS["worker"]["healthcheck"]["test"]))
    assert asked == ["workers", "workers"]
    assert set(asked) <= main.commands.keys()


def test_the_image_is_built_from_files_that_are_there_and_sent() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [word for words in copies for word in words.split()]
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(sources) == sorted(sent)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert not any(fnmatch.fnmatch(".env", pattern) for pattern in sent)


def test_the_image_runs_as_an_unprivileged_user() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", last_stage, re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["pgjq"]' in last_stage
