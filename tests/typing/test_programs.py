"""Type checkers accept the correct programs, and find every error of the wrong ones.

A line with an error ends with `# error: RULE, CODE`: the rule of pyright and the code of mypy. A checker may report
more about such a line, and nothing about the others.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.typing import checkers

if TYPE_CHECKING:
    from tests.typing.checkers import Report

pytestmark = pytest.mark.xdist_group("typing")
PROGRAMS = Path(__file__).parent / "programs"
MARK = re.compile(r"  # error: (\w+), ([\w-]+)$")


def marked(which: int) -> dict[tuple[str, int], str]:
    """Return the lines that must be errors, with the rule of pyright (0) or the code of mypy (1)."""
    return {
        (program.name, number): mark.groups()[which]
        for program in PROGRAMS.glob("*.py")
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if (mark := MARK.search(line))
    }


def differences(expected: dict[tuple[str, int], str], found: list[Report]) -> list[str]:
    """Name the marked lines that were not reported with their rule, and reports about other lines."""
    reported = {(report.file, report.line, report.rule) for report in found}
    missed = [(*place, rule) for place, rule in expected.items() if (*place, rule) not in reported]
    return sorted(
        [f"{file}:{line}: not reported as {rule}" for file, line, rule in missed]
        + [str(report) for report in found if (report.file, report.line) not in expected]
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROGRAMS, tmp_path / "programs"))


def test_pyright_reports_the_wrong_lines_and_no_others(programs: Path) -> None:
    config: dict[str, object] = {"typeCheckingMode": "strict", "pythonVersion": "3.11"}
    assert differences(marked(0), checkers.pyright(programs, config)) == []


def test_mypy_reports_the_wrong_lines_and_no_others(programs: Path) -> None:
    assert differences(marked(1), checkers.mypy(programs)) == []


def test_a_missed_error_and_an_unexpected_one_are_both_named() -> None:
    found = [checkers.Report("a.py", 2, "reportCallIssue", "wrong"), checkers.Report("a.py", 5, "reportOther", "new")]
    expected = {("a.py", 2): "reportCallIssue", ("a.py", 3): "reportArgumentType"}
    assert differences(expected, found) == ["a.py:3: not reported as reportArgumentType", "a.py:5: new (reportOther)"]


def test_both_kinds_of_program_are_there() -> None:
    files = {file for file, _ in marked(0)}
    assert {program.name for program in PROGRAMS.glob("*.py")} - files == {
        "right_async.py",
        "right_sync.py",
        "right_tasks.py",
    }
    assert len(marked(0)) > 50
