"""The package stays readable: small files, short functions, docstrings on what others call, sentences with subjects."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "pgjq").rglob("*.py"))}
Function = ast.FunctionDef | ast.AsyncFunctionDef

LINES_OF_A_FILE = 300
LINES_OF_A_FUNCTION = 30
SHARE_WITH_DOCSTRINGS = 0.9
LENGTH_OF_A_FIRST_LINE = 90
LINES_WITHOUT_A_SUBJECT = 10
# Pronouns that hide the worker, the caller, the reaper.
PRONOUNS = re.compile(r"\b(whoever|nobody|somebody|everybody|anybody)\b", re.IGNORECASE)


def functions(path: str) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(FILES[path])) if isinstance(node, Function))


def length(function: Function) -> int:
    """Count the lines from `def` to the end, with the signature and the docstring."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def public(scope: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """Yield what others may call: functions, classes and methods; a case of a suite is named by what it shows."""
    for node in scope.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith(("_", "test_")):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_files_are_short() -> None:
    assert [path for path, text in FILES.items() if len(text.splitlines()) > LINES_OF_A_FILE] == []


def test_functions_are_short() -> None:
    assert [f"{path}::{f.name}" for path in FILES for f in functions(path) if length(f) > LINES_OF_A_FUNCTION] == []


def test_what_others_call_has_docstrings() -> None:
    nodes = [(path, node) for path, text in FILES.items() for node in public(ast.parse(text))]
    without = [f"{path}:{node.lineno} {node.name}" for path, node in nodes if ast.get_docstring(node) is None]
    assert 1 - len(without) / len(nodes) >= SHARE_WITH_DOCSTRINGS, without


def test_docstrings_begin_with_a_short_line() -> None:
    documented = ast.Module | ast.ClassDef | Function
    nodes = [
        (path, node) for path in FILES for node in ast.walk(ast.parse(FILES[path])) if isinstance(node, documented)
    ]
    lines = [(path, (ast.get_docstring(node) or "").partition("\n")[0]) for path, node in nodes]
    assert [f"{path}: {line}" for path, line in lines if len(line) > LENGTH_OF_A_FIRST_LINE] == []


def test_sentences_name_their_subjects() -> None:
    paths = [
        ROOT / "README.md",
        *(p for folder in ("pgjq", "sql", "docs", "examples") for p in (ROOT / folder).rglob("*")),
    ]
    texts = {path: path.read_text() for path in paths if path.suffix in {".py", ".sql", ".lua", ".md", ".html"}}
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, text in texts.items()
        for line in text.splitlines()
        if PRONOUNS.search(line)
    ]
    assert len(found) < LINES_WITHOUT_A_SUBJECT, found
