"""Mutants: a module with one change, such as `<` for `<=`, made in its syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """A changed module: where it was changed, how, and its new source."""

    line: int
    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    count = len(list(_places(ast.parse(source))))
    for number in range(count):
        tree = ast.parse(source)
        node = list(_places(tree))[number]
        before = ast.unparse(node)
        changed = _mutate(node)
        tree = _Replace(node, changed).visit(tree)
        ast.fix_missing_locations(tree)
        yield Mutant(node.lineno, f"{before}  ->  {ast.unparse(changed)}", ast.unparse(tree))


def _places(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that can be changed; annotations, defaults of types and docstrings are left alone."""
    skipped = set(_annotations(tree))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
                yield node
            case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
                yield node
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                yield node
            case ast.IfExp():
                yield node
            case ast.Constant(value=bool() | int() | float()):
                yield node
            case _:
                pass


def _annotations(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.AnnAssign():
                parts = [node.annotation]
            case ast.arg():
                parts = [node.annotation]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                parts = [node.returns, *node.decorator_list]
            case ast.ClassDef():
                parts = list(node.decorator_list)
            case _:
                pass
        for part in parts:
            yield from (id(each) for each in ast.walk(part)) if part is not None else ()


def _mutate(node: ast.expr) -> ast.expr:  # noqa: PLR0911
    match node:
        case ast.Compare(ops=[operator]):
            return ast.Compare(node.left, [COMPARISONS[type(operator)]()], node.comparators)
        case ast.BinOp():
            return ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.BoolOp():
            return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp():
            return node.operand
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=value):
            return ast.Constant(value + 1)  # type: ignore[operator]
        case _:
            raise TypeError(node)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)
