"""What README and pages claim can be checked: promises name tests, measurements name the command that repeats them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_source_rules import exists, is_test, references

ROOT = Path(__file__).parents[2]
PROMISES = [
    line.strip("| ").split(" | ")
    for line in (ROOT / "docs/guarantees.md").read_text().partition("## Which tests hold each promise")[2].splitlines()
    if line.startswith("| ") and "::test_" in line
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RATE = re.compile(
    r"\d[\d,.]* (?:jobs/s|jobs a second)|\btimes as fast\b|\bp(?:50|99) \d|\d µs\b"
    r"|\d times (?:fast|slow|cheap)er|(?:quarter|half|%) (?:fast|slow)er"
)
# Words that no command can show.
PRAISE = re.compile(r"\b(fastest|blazing|lightning|unmatched|world[- ]class|best[- ]in[- ]class)\b", re.IGNORECASE)
COMMAND = re.compile(r"\bmake [a-z]|python -m (?:benchmarks|tests)|(?:performance|file-storage)\.md")


def test_there_are_promises() -> None:
    assert len(PROMISES) > 15


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[0][:60])
def test_a_promise_names_tests_that_exist(promise: list[str]) -> None:
    named = references(promise[1])
    assert len(named) >= 2
    assert [name for name in named if not (exists(*name) and is_test(*name))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_section_with_a_measured_speed_names_the_command_behind_it(page: Path) -> None:
    # The page about performance is about one command, which its head has.
    level = r"^# " if page.name == "performance.md" else r"^#+ "
    sections = re.split(level, page.read_text(), flags=re.MULTILINE)
    without = [section.splitlines()[0] for section in sections if RATE.search(section) and not COMMAND.search(section)]
    assert without == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_praises(page: Path) -> None:
    assert PRAISE.findall(page.read_text()) == []
