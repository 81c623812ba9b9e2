"""What a newcomer tries first, and what holds for every command."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from importlib.metadata import version
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from pgjq.cli import main
from pgjq.cli.option_tables import CHANGEABLE, FILTER, JOB, QUEUE
from pgjq.definition import DEFAULTS
from pgjq.job import NewJob, QueueInfo
from pgjq.options import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterator


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(child, (*path, name))


COMMANDS = dict(walk(main))
LEAVES = [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)]


def examples(path: tuple[str, ...]) -> list[str]:
    """Return the examples of a command's help, without what stands beside them."""
    shown = CliRunner().invoke(main, [*path, "--help"]).output
    _, _, after = shown.partition("Examples:\n")
    return [re.split(r"\s{2,}", line.strip())[0] for line in after.partition("\n\n")[0].splitlines()]


def parse(arguments: list[str]) -> tuple[str, ...]:
    """Read a command line without running it, and return whose it is."""
    command: click.Command = main
    context, path = None, ()
    while True:
        context = command.make_context(command.name, arguments, parent=context)
        if not isinstance(command, click.Group):
            return path
        name, child, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None
        assert child is not None
        command, path = child, (*path, name)


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="pgjq")
    assert result.output == f"pgjq {version('pgjq')}\n"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_examples_of_this_command_that_can_be_run(path: tuple[str, ...]) -> None:
    found = [example.replace("$(date -Is -d '7 days ago')", "2026-01-01T00:00:00Z") for example in examples(path)]
    parsed = []
    for example in found:
        words = shlex.split(re.split(r" [|<>] ", example)[0])
        while "=" in words[0]:
            words.pop(0)
        assert words.pop(0) == "pgjq"
        parsed.append(parse(words))
    assert any(whose[: len(path)] == path for whose in parsed)


NO_JSON = (("web",), ("health",), ("top",))


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in NO_JSON], ids=" ".join)
def test_every_command_answers_in_json_when_asked(path: tuple[str, ...]) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[path].params)


def test_the_commands_of_the_contract_are_there() -> None:
    wanted = "demo migrate worker reaper enqueue status result cancel retry delete queues jobs prune bench"
    assert set(wanted.split()) <= set(main.commands)
    queues, jobs = main.commands["queues"], main.commands["jobs"]
    assert isinstance(queues, click.Group)
    assert isinstance(jobs, click.Group)
    assert {"list", "show", "create", "update", "pause", "resume", "delete", "stats"} <= set(queues.commands)
    assert {"find", "retry", "cancel", "delete"} <= set(jobs.commands)


def test_exit_codes_are_in_the_help() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert re.findall(r"^ +(\d+)  +\w", shown.partition("Exit codes:")[2], re.MULTILINE) == ["0", "1", "2", "130"]


def test_every_option_of_jobs_queues_and_filters_is_on_the_command_line() -> None:
    assert {setting.name for setting in JOB} == {field.name for field in fields(NewJob)} - {"id", "payload"}
    assert {setting.name for setting in CHANGEABLE} == {*DEFAULTS, "warning_queue_size"}
    assert {s.name for s in QUEUE} == {f.name for f in fields(QueueInfo)} - {"name", "paused", "created_at", "stats"}
    assert {setting.name for setting in FILTER} == {field.name for field in fields(JobFilter)} - {"after", "limit"}


def test_a_demo_of_too_few_jobs_is_refused_with_the_range() -> None:
    result = CliRunner().invoke(main, ["demo", "--jobs", "3"])
    assert result.exit_code == 2
    assert "100<=x<=200000" in result.stderr
