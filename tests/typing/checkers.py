"""Run type checkers, and return what they report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MYPY_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)  \[(?P<rule>[\w-]+)\]$")


class Report(NamedTuple):
    """One error: the file relative to the checked directory, the line, the rule or code, and the message."""

    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message} ({self.rule})"


def pyright(directory: Path, config: dict[str, object]) -> list[Report]:
    """Check a directory with pyright."""
    (directory / "pyrightconfig.json").write_text(json.dumps(config))
    output = _run(directory, "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(directory))
    found = json.loads(output)["generalDiagnostics"]
    return [
        Report(
            Path(each["file"]).relative_to(directory.resolve()).as_posix(),
            each["range"]["start"]["line"] + 1,
            each.get("rule", "syntax"),
            each["message"],
        )
        for each in found
        if each["severity"] == "error"
    ]


def mypy(directory: Path) -> list[Report]:
    """Check a directory with mypy; what it knows about pgjq is cached in the virtual environment."""
    cache = Path(sys.prefix) / ".mypy_cache"
    output = _run(directory, "mypy", "--strict", "--no-error-summary", "--cache-dir", str(cache), ".")
    lines = [line for line in output.splitlines() if ": note: " not in line]
    found = [MYPY_LINE.fullmatch(line) for line in lines]
    assert None not in found, output
    return [Report(each["file"], int(each["line"]), each["rule"], each["message"]) for each in found if each]


def _run(directory: Path, module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout
