"""What a newcomer tries first."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from click.testing import CliRunner

from pgjq.cli import main


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="pgjq")
    assert result.output == f"pgjq {version('pgjq')}\n"


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)])
def test_help_has_examples(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    _, _, examples = result.output.partition("Examples:\n")
    assert "pgjq" in examples.splitlines()[0]


def test_a_demo_of_too_few_jobs_is_refused_with_the_range() -> None:
    result = CliRunner().invoke(main, ["demo", "--jobs", "3"])
    assert result.exit_code == 2
    assert "100<=x<=200000" in result.stderr
