"""`python -m pgjq` is the script `pgjq`."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.run_command import PGJQ


def said(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command, and return what it said."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_module_does_what_the_script_does() -> None:
    for words in (["--help"], ["queues", "--help"], ["nope"], ["status"]):
        module, script = said(sys.executable, "-m", "pgjq", *words), said(PGJQ, *words)
        assert module.returncode == script.returncode
        assert module.stdout.replace("python -m pgjq", "pgjq").split() == script.stdout.split()
        assert module.stderr.replace("python -m pgjq", "pgjq") == script.stderr


def test_the_usage_line_says_how_it_was_called() -> None:
    assert said(sys.executable, "-m", "pgjq", "--help").stdout.startswith("Usage: python -m pgjq [OPTIONS] COMMAND")
