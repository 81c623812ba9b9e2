"""The page about the sources: every rule is on it, and everything that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pgjq.storage.base import Operations
from pgjq.testing import StorageConformance, WorkerConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text()
RULES = {"R0": 57, "R1": 25, "R2": 20, "R3": 127, "R4": 42}
METHODS = 28
# A path from the root, perhaps with what to look for in that file: `pgjq/reaper.py::Reaper.on`.
REFERENCE = re.compile(r"`(\w[\w.-]*/[\w./-]+\.\w+)(?:::([^`]+))?`")


class Row(NamedTuple):
    """One rule: what became of it, where it lives, and what shows it."""

    rule: str
    words: str
    where: str
    shown: str


ROWS = [Row(*line.strip("| ").split(" | ")) for line in PAGE.splitlines() if line.startswith("| R")]


def test_every_rule_is_there_once_and_in_its_place() -> None:
    assert [row.rule for row in ROWS] == [
        f"{document}-{n:02}" for document, count in RULES.items() for n in range(1, count + 1)
    ]


def test_every_file_and_name_on_the_page_exists() -> None:
    assert [(path, name) for path, name in references(PAGE) if not exists(path, name)] == []


def test_every_rule_says_where_it_lives() -> None:
    assert [row.rule for row in ROWS if not references(row.where)] == []


def test_every_rule_is_shown_by_a_test_and_guidance_at_least_by_a_page() -> None:
    unshown = [row.rule for row in ROWS if not any(is_shown_by(row, *named) for named in references(row.shown))]
    assert unshown == []


def test_what_is_named_beside_tests_is_one() -> None:
    named = [reference for row in ROWS for reference in references(row.shown)]
    assert [(path, name) for path, name in named if not (is_test(path, name) or path.startswith("docs/"))] == []


def test_code_in_the_last_two_columns_is_a_reference() -> None:
    cells = [cell for row in ROWS for cell in (row.where, row.shown)]
    assert [cell for cell in cells if len(references(cell)) != cell.count("`") / 2] == []


def test_the_rules_that_are_not_met_are_listed_at_the_head() -> None:
    (listed,) = re.findall(r"^Not met, whole or in part: (.+)\.$", PAGE, re.MULTILINE)
    assert listed.split(", ") == [row.rule for row in ROWS if "**not met:**" in row.words]


def test_every_method_of_the_storage_interface_has_an_operation_or_a_reason() -> None:
    _, _, table = PAGE.partition("## The storage interface")
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len({method for method, _, _ in rows}) == len(rows) == METHODS
    assert all(how.strip() for _, _, how in rows)
    operations = {name for _, cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    assert [name for name in sorted(operations) if not callable(getattr(Operations, name, None))] == []


@pytest.mark.parametrize(
    "reference",
    [
        ("pgjq/nobody.py", ""),
        ("pgjq/reaper.py", "Nobody"),
        ("pgjq/reaper.py", "Reaper.nothing"),
        ("pgjq/reaper.py", "nothing.start"),
        ("sql/functions/0001_reap.sql", "pgjq.nothing"),
        ("docs/leases.md", "what nobody wrote"),
    ],
)
def test_what_is_not_there_is_noticed(reference: tuple[str, str]) -> None:
    assert not exists(*reference)


def references(text: str) -> list[tuple[str, str]]:
    return REFERENCE.findall(text)


def is_shown_by(row: Row, path: str, name: str) -> bool:
    return is_test(path, name) or (row.words.startswith("guidance:") and path.startswith("docs/"))


def is_test(path: str, name: str) -> bool:
    """Tell whether pytest would run it: a function of a test file, or a case of a conformance suite."""
    if path.startswith("pgjq/testing/"):
        return name.startswith("test_") and any(
            hasattr(suite, name) for suite in (StorageConformance, WorkerConformance)
        )
    return name.startswith("test_") and Path(path).name.startswith("test_") and name in names(path)


def exists(path: str, name: str) -> bool:
    """Tell whether a file is there, and in it a definition of that name, or in a text that is no Python those words."""
    if not (ROOT / path).is_file():
        return False
    if not name:
        return True
    if path.endswith(".py"):
        return name in names(path)
    return " ".join(name.split()) in " ".join((ROOT / path).read_text().split())


@cache
def names(path: str) -> frozenset[str]:
    """Everything that a module defines; methods as `Class.method`, and those of a suite by their own names as well."""
    found = frozenset(defined(ast.parse((ROOT / path).read_text())))
    if path.startswith("pgjq/testing/"):
        return found | {name.rpartition(".")[2] for name in found}
    return found


def defined(scope: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in scope.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
                yield from (f"{name}.{inner}" for inner in defined(node))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                continue
