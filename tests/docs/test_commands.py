"""Every command in the documents is one that exists: for `pgjq` and for `make`."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest

from pgjq.cli import main
from tests.docs.pages import PAGES, ROOT, blocks, name

if TYPE_CHECKING:
    from pathlib import Path

SHELL = ("", "sh", "console")
ASSIGNMENT = re.compile(r"\w+=")
INLINE = re.compile(r"`pgjq ([a-z]+)[^`]*`")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page: Path) -> list[list[str]]:
    """Read the commands in a page's blocks: what stands between operators, without assignments before it."""
    lines = (line.removeprefix("$ ") for block in blocks(page, *SHELL) for line in block.text.splitlines())
    return [command for line in lines if re.match(r"(\w+=\S* )*(pgjq|make|docker)\b", line) for command in cut(line)]


def cut(line: str) -> list[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(";|&<>()"):
            found.append([])
        elif found[-1] or not ASSIGNMENT.match(word):
            found[-1].append(word)
    return found


def parse(words: list[str]) -> str:
    """Have the command line parse these words without running them, and return the path of the command."""
    command: click.Command = main
    context: click.Context | None = None
    label, rest = "pgjq", words
    while True:
        context = command.make_context(label, list(rest), parent=context)
        if not isinstance(command, click.Group):
            return context.command_path
        label, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_in_documents_can_be_given(page: Path) -> None:
    for program, *words in filter(None, commands(page)):
        if program == "pgjq":
            try:
                parse(words)
            except click.ClickException as error:
                pytest.fail(f"{name(page)}: pgjq {' '.join(words)}: {error.format_message()}")
        if program == "make":
            assert {word for word in words if "=" not in word} <= TARGETS


def test_commands_that_are_mentioned_exist() -> None:
    mentioned = {word for page in PAGES for word in INLINE.findall(page.read_text())}
    assert mentioned <= main.commands.keys()


def test_the_page_about_the_command_line_lists_every_command() -> None:
    table = (ROOT / "docs/command-line.md").read_text().partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \| ", table, re.MULTILINE)
    assert main.commands.keys() <= {word for cell in cells for word in re.findall(r"`(\w+)", cell)}
