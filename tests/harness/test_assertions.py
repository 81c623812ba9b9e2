"""Every test asserts something, itself or in a helper that it calls."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("pgjq/testing/**/*.py")]
CHECKS = {"raises", "warns", "fail"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.AST) -> set[str]:
    """Return the names of the functions and methods that are called, or passed on, inside."""
    names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return names | {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def asserting(trees: list[ast.AST]) -> set[str]:
    """Return the names of all functions that assert, or call one that does."""
    known = {f.name: f for tree in trees for f in functions(tree)}
    found = {name for name, f in known.items() if asserts(f, CHECKS)}
    while more := {name for name, f in known.items() if name not in found and called(f) & found}:
        found |= more
    return found


def asserts(function: Function, checks: set[str]) -> bool:
    names = called(function)
    has_own = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return has_own or bool(names & checks) or any(re.match("assert[A-Z]", name) for name in names)  # of unittest


def test_every_test_asserts_something() -> None:
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    checks = asserting([tree for path, tree in trees.items() if "test_" not in path.name]) | CHECKS
    silent = []
    for path, tree in trees.items():
        helpers = asserting([tree]) | checks
        tests = (f for f in functions(tree) if f.name.startswith("test_"))
        silent += [f"{path.relative_to(ROOT)}::{f.name}" for f in tests if not asserts(f, helpers - {f.name})]
    assert silent == []


@pytest.mark.parametrize("body", ["pass", "run()", "client.enqueue('q', 'a', 1)"])
def test_a_test_without_an_assertion_is_found(body: str) -> None:
    (function,) = functions(ast.parse(f"def test(client): {body}"))
    assert not asserts(function, CHECKS)
