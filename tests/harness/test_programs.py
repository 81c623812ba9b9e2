"""Tests of how a missing program is told: in the summary, and with CI=true as a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CASES = """
import pytest
from tests.programs import missing

@pytest.fixture(scope="session")
def program():
    missing("Frobnicator is not installed (apt-get install frob)")

def test_one(program): pass
def test_two(program): pass
def test_three(): pytest.skip("for another reason")
"""
LINE = "NOT TESTED: 2 tests did not run. Frobnicator is not installed (apt-get install frob)"


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_missing_program_has_a_line_in_the_summary(tmp_path: Path, processes: str) -> None:
    ran = _run(tmp_path, "--numprocesses", processes)
    assert ran.returncode == 0
    assert ran.stdout.count("NOT TESTED") == 1
    assert LINE in ran.stdout


def test_in_continuous_integration_a_missing_program_is_a_failure(tmp_path: Path) -> None:
    ran = _run(tmp_path, CI="true")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 errors" in ran.stdout
    assert "Frobnicator is not installed (apt-get install frob). With CI=true" in ran.stdout


def _run(folder: Path, *options: str, CI: str = "") -> subprocess.CompletedProcess[str]:  # noqa: N803
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.programs"]')
    (folder / "test_cases.py").write_text(CASES)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own |= {"CI": CI, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # No plugin is needed here but this one.
    command = (sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", "--basetemp", "run")
    return subprocess.run((*command, *options), cwd=folder, env=own, capture_output=True, text=True, check=False)
