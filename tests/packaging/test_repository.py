"""The files that a code host reads, compared with the code: workflows, forms and hooks. No host runs them here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z./-]+):", MAKEFILE, re.MULTILINE))
CHECKS = re.findall(r'^\t@echo "==> (.+)"$', MAKEFILE.partition("\ncheck:")[2].partition("\n\n")[0], re.MULTILINE)
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


def load(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text())


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def matrix() -> dict[str, list[str]]:
    return load(ROOT / ".github/workflows/matrix.yml")["jobs"]["test"]["strategy"]["matrix"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_says_when_it_runs_and_has_few_rights_and_limits(path: Path) -> None:
    workflow = load(path)
    assert workflow[True]  # YAML 1.1 reads the key `on` as true.
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"].startswith("ubuntu-")
        assert job["timeout-minutes"] <= 120
        assert job["steps"][0]["uses"].startswith("actions/checkout@")
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_the_makefile_has(path: Path) -> None:
    calls = re.findall(r"\bmake ([^\n&|;]+)", "\n".join(step.get("run", "") for step in steps(load(path))))
    assert calls
    assert {word for call in calls for word in call.split() if "=" not in word} - TARGETS == set()


def test_the_workflows_together_check_test_measure_and_build() -> None:
    runs = {step["run"] for path in WORKFLOWS for step in steps(load(path)) if "run" in step}
    assert {"make check", "make test", "make coverage", "make build", "make docs"} <= runs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_name_supported_pythons(path: Path) -> None:
    workflow = load(path)
    named = {str(step["with"]["python-version"]) for step in steps(workflow) if "setup-python" in step.get("uses", "")}
    for job in workflow["jobs"].values():
        named |= set(job.get("strategy", {}).get("matrix", {}).get("python", []))
    assert named - {"${{ matrix.python }}"} <= set(PYTHONS)
    assert named


def test_the_matrix_has_every_python_of_the_classifiers() -> None:
    assert PYTHONS[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    assert matrix()["python"] == PYTHONS


def test_pull_requests_run_the_oldest_and_the_newest_python() -> None:
    checks = load(ROOT / ".github/workflows/checks.yml")
    assert checks["jobs"]["test"]["strategy"]["matrix"]["python"] == [PYTHONS[0], PYTHONS[-1]]


def test_the_matrix_begins_with_the_oldest_servers_that_the_documents_promise() -> None:
    oldest = re.search(r"PostgreSQL (\d+) or newer", (ROOT / "README.md").read_text())
    assert oldest is not None
    numbers = [int(number) for number in matrix()["postgres"]]
    assert numbers == list(range(int(oldest[1]), numbers[-1] + 1))
    redis = re.search(r"Redis\*{0,2} (\d+\.\d+) or newer", (ROOT / "docs/storages.md").read_text())
    assert redis is not None
    assert matrix()["redis"][0] == f"redis:{redis[1]}"
    assert any(image.startswith("valkey/") for image in matrix()["redis"])


def test_the_matrix_starts_the_servers_of_the_tests_and_names_them_to_the_tests() -> None:
    job = load(ROOT / ".github/workflows/matrix.yml")["jobs"]["test"]
    services = load(ROOT / "tests/docker-compose.yml")["services"]
    environment = job["env"]
    assert services["postgres"]["image"].startswith("${POSTGRES_IMAGE:")
    assert services["redis"]["image"].startswith("${REDIS_IMAGE:")
    assert {"POSTGRES_IMAGE", "REDIS_IMAGE"} <= environment.keys()
    for service, variable in (("postgres", "PGJQ_TEST_URL"), ("redis", "PGJQ_TEST_REDIS_URL")):
        (port,) = services[service]["ports"]
        assert f"localhost:{port.split(':')[1]}" in environment[variable]
    assert f":{services['postgres']['environment']['POSTGRES_PASSWORD']}@" in environment["PGJQ_TEST_URL"]


def test_variables_that_workflows_set_are_read_by_the_tests() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    named = set(re.findall(r"PGJQ_TEST_\w+", text))
    assert named == {"PGJQ_TEST_URL", "PGJQ_TEST_REDIS_URL"}
    assert all(f'environ.get("{name}")' in sources for name in named)


def test_hooks_before_a_commit_run_what_make_check_runs() -> None:
    (local,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    assert [hook["name"] for hook in local["hooks"]] == CHECKS
    for hook in local["hooks"]:
        tool = re.search(r"\.venv/bin/([\w-]+)", hook["entry"])
        assert tool is not None
        assert hook["name"].startswith(tool[1])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_has_what_the_host_requires(path: Path) -> None:
    form = load(path)
    assert form["name"]
    assert form["description"]
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked) > 0
    assert all(part["attributes"]["label"] for part in asked)


def test_updates_are_proposed_for_what_the_repository_uses() -> None:
    updates = load(ROOT / ".github/dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"pip", "github-actions", "docker"}
    assert all((ROOT / update["directory"].strip("/")).is_dir() for update in updates)


def test_the_source_archive_includes_files_that_are_there() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in included if not (ROOT / name.strip("/")).exists()] == []


def test_the_guide_names_files_that_are_there() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text().partition("## How to add an option")[2]
    named = set(re.findall(r"`([\w.-]+/[\w./-]*|[\w.-]+\.(?:yml|md|toml))`", guide))
    assert len(named) > 40
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_tools_and_peers_that_are_pinned_are_pinned_once() -> None:
    names = [line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    assert sorted(set(names)) == sorted(names)


def test_every_extra_installs_something() -> None:
    assert [name for name, packages in PROJECT["project"]["optional-dependencies"].items() if not packages] == []
