"""The public modules and names: the table in docs/api.md declares them, and these tests compare it with the code."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import pgjq

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
ROWS: list[tuple[str, str]] = re.findall(r"^\| `(pgjq[\w.]*)` \| (.+) \|$", PAGE, re.MULTILINE)
DECLARED = {module: re.findall(r"`(\w+)`", names) for module, names in ROWS}
PUBLIC = [(module, name) for module, names in {**DECLARED, "pgjq": pgjq.__all__}.items() for name in names]
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.*")]
# What a program that only names its queues must not load.
HEAVY = {"alembic", "asyncio", "click", "importlib.metadata", "psycopg", "pyspark", "redis", "rich", "sqlalchemy"}


def in_new_process(code: str) -> str:
    """Run Python without this process's imports, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_page_declares_the_public_modules() -> None:
    assert {"pgjq", "pgjq.errors", "pgjq.migrate", "pgjq.spark", "pgjq.storage.base", "pgjq.testing"} <= set(DECLARED)


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_a_public_name_exists_and_has_a_docstring(module: str, name: str) -> None:
    value: Any = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, f"{module}.{name} is public and has no docstring"


@pytest.mark.parametrize("module", ["pgjq.spark", "pgjq.testing"])
def test_the_page_lists_every_name_that_a_public_module_exports(module: str) -> None:
    assert sorted(DECLARED[module]) == sorted(import_module(module).__all__)


def test_the_page_describes_every_name_of_the_package() -> None:
    described = {*re.findall(r"^::: pgjq\.(\w+)$", PAGE, re.MULTILINE), *vars(pgjq.errors)}
    assert set(pgjq.__all__) - described == set()


def test_documents_and_examples_import_public_modules_only() -> None:
    statement = re.compile(r"^\s*(?:from|import) (pgjq(?:\.\w+)*) ?(?:import .*|)$", re.MULTILINE)
    used = {(path.name, module) for path in DOCUMENTS for module in statement.findall(path.read_text())}
    assert {module for _, module in used} >= {"pgjq", "pgjq.testing"}
    assert {(page, module) for page, module in used if module not in DECLARED} == set()


def test_type_checkers_and_python_find_each_name_in_the_same_module() -> None:
    tree = ast.parse(Path(pgjq.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        str(node.module): tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == pgjq._NAMES


def test_every_name_is_exported_once_and_can_be_imported() -> None:
    assert pgjq.__all__ == sorted(set(pgjq.__all__))
    everything: dict[str, Any] = {}
    exec("from pgjq import *", everything)  # noqa: S102
    assert set(pgjq.__all__) <= everything.keys()
    assert {*pgjq.__all__, "__version__"} <= set(dir(pgjq))
    assert re.match(r"\d+\.\d+", pgjq.__version__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pgjq' has no attribute 'Qeueu'"):
        _ = pgjq.Qeueu
    with pytest.raises(ImportError, match="cannot import name 'Qeueu'"):
        exec("from pgjq import Qeueu")  # noqa: S102


@pytest.mark.parametrize(
    "first", ["import pgjq.migrate", "from pgjq.migrate import status", "import pgjq.cli", "import pgjq.open"]
)
def test_migrate_stays_a_function_whatever_is_imported_first(first: str) -> None:
    assert in_new_process(f"{first}\nimport pgjq, types\nprint(type(pgjq.migrate).__name__)").split() == ["function"]


def test_importing_pgjq_loads_no_driver_and_no_optional_package() -> None:
    loaded = in_new_process("import pgjq, sys\nprint(*sys.modules)").split()
    assert HEAVY.intersection(loaded) == set()


def test_the_help_of_the_command_line_loads_no_driver_and_no_optional_package() -> None:
    program = """
        import sys
        from pgjq.cli import main
        main(["--help"], standalone_mode=False)
        print(*sys.modules)
    """
    assert HEAVY.difference({"click"}).intersection(in_new_process(dedent(program)).split()) == set()


@pytest.mark.parametrize(
    ("expression", "unwanted"),
    [
        ("pgjq.open_storage('memory:')", {"psycopg", "redis", "pgjq.storage.file.storage"}),
        ("pgjq.open_storage('file:///nowhere')", {"psycopg", "redis"}),
        ("pgjq.open_storage('postgresql://localhost/none')", {"redis", "sqlalchemy", "alembic", "click"}),
        ("pgjq.open_storage('redis://localhost')", {"psycopg", "sqlalchemy"}),
        ("pgjq.Client, pgjq.PostgresStorage", {"redis", "sqlalchemy", "alembic", "rich", "pgjq.worker.engine"}),
    ],
)
def test_a_storage_loads_only_what_it_uses(expression: str, unwanted: set[str]) -> None:
    loaded = in_new_process(f"import pgjq, sys\n{expression}\nprint(*sys.modules)").split()
    assert unwanted.intersection(loaded) == set()
