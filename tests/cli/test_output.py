"""How answers look in a terminal, and what is said of a command that is cut short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import pgjq
from pgjq.cli import main
from pgjq.cli.formatting import duration
from tests.cli.run_command import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "0123456789" * 6
TERMINAL = {"FORCE_COLOR": "1", "COLUMNS": "70", "TERM": "xterm"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file://{tmp_path}"
    for job_id in (LONG, "größe 你好"):
        run("enqueue", "mail", "1", "--id", job_id, url=url)
    return url


def look(url: str, *arguments: str, **environment: str) -> str:
    return CliRunner().invoke(main, arguments, env={**TERMINAL, "PGJQ_URL": url, **environment}).output


def read(shown: str) -> list[str]:
    """Return the lines without their styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()


def test_a_table_keeps_to_the_terminals_width_and_folds_ids_without_losing_a_character(url: str) -> None:
    lines = read(look(url, "jobs", "find"))
    assert max(map(len, lines)) <= 70
    assert "".join(line[6:].split("  ")[0].strip() for line in lines[1:]).startswith(LONG)
    assert "queued" in lines[1]


def test_a_table_that_cannot_fit_is_whole_all_the_same(url: str) -> None:
    lines = read(look(url, "queues", "stats", COLUMNS="20"))
    assert lines[0].split()[::2] == ["name", "deferred", "failing", "failed", "oldest"]
    assert lines[1].split()[:2] == ["mail", "2"]


def test_states_have_colours_unless_they_are_turned_off(url: str) -> None:
    assert "\x1b[34mqueued" in look(url, "jobs", "find")
    assert "\x1b[3" not in look(url, "jobs", "find", NO_COLOR="1")
    assert "\x1b" not in run("jobs", "find", url=url).output


def test_in_a_pipe_nothing_is_folded(url: str) -> None:
    lines = run("jobs", "find", url=url).stdout.splitlines()
    assert LONG in lines[1]
    assert "größe 你好  " in lines[2]
    assert not any(line.endswith(" ") for line in lines)


def test_whoever_interrupts_is_told_how_far_it_came(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_many(*_arguments: Any, progress: Callable[[int], Any], **_wanted: Any) -> int:
        progress(1_000)
        raise KeyboardInterrupt

    monkeypatch.setattr(pgjq.Client, "delete_many", delete_many)
    result = run("jobs", "delete", "--queue", "mail", "--yes", url=url)
    assert result.exit_code == 130
    assert result.stderr.split("\n")[0] == "1,000 jobs deleted so far; the others are as they were"
    assert result.stderr.endswith("Error: interrupted\n")
    erased, told = look(url, "jobs", "delete", "--queue", "mail", "--yes").rsplit("\x1b[2K", 1)
    assert "deleted" in erased
    assert told.splitlines()[0] == "1,000 jobs deleted so far; the others are as they were"


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0s"), (0.25, "0.25s"), (90, "90s"), (900, "15m"), (7200, "2h"), (604800, "7d"), (100.4, "100s")],
)
def test_durations_are_written_as_options_read_them(seconds: float, written: str) -> None:
    assert duration(seconds) == written
