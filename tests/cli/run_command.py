"""Commands as a test runs them: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from pgjq.cli import main

if TYPE_CHECKING:
    from collections.abc import Generator

PGJQ = str(Path(sys.executable).with_name("pgjq"))


def run(*arguments: str, url: str | None, typed: str = "") -> Result:
    """Run a command here, with PGJQ_URL as its storage."""
    return CliRunner().invoke(main, arguments, input=typed, env={"PGJQ_URL": url})


def answer(*arguments: str, url: str, typed: str = "", code: int = 0) -> Any:
    """Run a command with --json and return what it says, if its exit code is the expected one."""
    result = run(*arguments, "--json", url=url, typed=typed)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def complaint(*arguments: str, url: str | None, typed: str = "", code: int = 1) -> str:
    """Run a command that ends with one line on stderr, and return it; a note about a new queue may precede it."""
    result = run(*arguments, url=url, typed=typed)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("created queue ")]
    return line.removeprefix("Error: ")


class Process:
    """A command that goes on, and its log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def wait_for(self, said: str) -> dict[str, Any]:
        """Read the log up to a message that says this, and return its line."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if said in (entry := json.loads(line))["message"]:
                return entry
        raise AssertionError(f"it ended without saying {said!r}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self._process.send_signal(number)
        return self._process.wait(30)


@contextmanager
def started(*arguments: str, url: str, directory: Path) -> Generator[Process]:
    """Have a command run in a directory, and see to it that it is gone afterwards."""
    process = subprocess.Popen(
        [PGJQ, *arguments, "--json"],
        cwd=directory,
        env={**os.environ, "PGJQ_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Process(process)
    finally:
        process.kill()
        process.communicate()
