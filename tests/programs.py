"""Programs that some tests need and that no wheel brings: PgBouncer, Chromium, tmux, and Java for Spark.

Tests that need a missing one are skipped, and the summary of the run has a line that says so. With CI=true they fail.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

PREFIX = "missing program: "


def missing(what: str, *, in_ci: bool = True) -> NoReturn:
    """Skip the test that asks, or fail it with CI=true; `what` says what is missing and how to get it.

    `in_ci=False` is for a program that continuous integration does not install: there, too, the test is skipped.
    """
    if in_ci and os.environ.get("CI") == "true":
        pytest.fail(f"{what}. With CI=true no test is skipped because a program is missing", pytrace=False)
    pytest.skip(PREFIX + what)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say in one line for each missing program how many tests did not run."""
    reasons = (report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    counts = Counter(reason.partition(PREFIX)[2] for reason in reasons if PREFIX in reason)
    for what, count in counts.items():
        terminalreporter.write_line(f"NOT TESTED: {count} tests did not run. {what}", yellow=True, bold=True)
