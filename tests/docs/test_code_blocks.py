"""Every Python block in the documents, run as it stands there, in its page's order and in one namespace a page.

`pgjq` is imported. What else a page takes for granted, such as a handler that runs elsewhere, is in page_setup/ under
the page's name; a setup may also have a function `afterwards`, which looks at what the page has left behind. Addresses
in the text stand for servers of the tests. `run()` begins and returns, and what it began ends with the page. What
`print` says is what the comment behind it begins with.
"""

from __future__ import annotations

import linecache
import re
import sys
from contextlib import ExitStack
from functools import partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine

import pgjq
from pgjq.worker.engine_runner import Runnable
from tests.docs.pages import PAGES, Block, blocks, name

# Those are run by tests/spark/test_code_blocks.py.
WITH_SPARK = ("spark", "pipeline")
PAGE_SETUP = Path(__file__).parent / "page_setup"
SAID = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def parts(page: Path) -> list[Block]:
    """List what is run here: blocks with a title are files, and the tests of the tutorial and of Django run those."""
    return [block for block in blocks(page, "python") if block.excuse is None and block.title is None]


@pytest.fixture
def url(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    given = conninfo_to_dict(empty_database)
    url = f"postgresql:///{given.pop('dbname')}?{urlencode(given)}"
    monkeypatch.setenv("PGJQ_URL", url)
    monkeypatch.chdir(tmp_path)
    return url


@pytest.fixture
def places(url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    """Say what the addresses in the text stand for."""
    return {
        "postgresql://localhost/shop": url,
        "postgresql://owner@localhost/shop": url,
        "postgresql+psycopg://localhost/shop": url.replace("postgresql:", "postgresql+psycopg:", 1),
        "redis://localhost:6379/0": redis_url,
        "/var/lib/jobs": str(tmp_path / "jobs"),
    }


@pytest.mark.parametrize("page", [page for page in PAGES if parts(page) and page.stem not in WITH_SPARK], ids=name)
def test_the_code_on_a_page_does_what_it_says(
    page: Path,
    url: str,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = parts(page)
    if not any("pgjq.migrate(" in block.text for block in code):
        pgjq.migrate(url)
    module = ModuleType("page")  # A real one, where type hints are looked up.
    monkeypatch.setitem(sys.modules, "page", module)
    names = vars(module)
    names["pgjq"] = pgjq
    with ExitStack() as stack:
        monkeypatch.setattr(Runnable, "run", partialmethod(begin, stack))
        stack.callback(close, names)
        setup = PAGE_SETUP / f"{page.stem.lower()}.py"
        if setup.exists():
            exec(compile(setup.read_text(), setup, "exec", dont_inherit=True), names)  # noqa: S102
        for block in code:
            capsys.readouterr()
            run(block, names, places)
            compare(block, capsys.readouterr().out)
        names.get("afterwards", lambda: None)()


def begin(runnable: Runnable, stack: ExitStack) -> None:
    """Stand for `run()`, which would wait for a signal."""
    stack.enter_context(runnable)


def run(block: Block, names: dict[str, Any], places: dict[str, str]) -> None:
    """Run a block; a traceback names its page and line."""
    text = "\n" * (block.line - 1) + block.text
    for place, real in places.items():
        text = text.replace(place, real)
    where = name(block.page)
    linecache.cache[where] = (len(text), None, text.splitlines(keepends=True), where)
    exec(compile(text, where, "exec", dont_inherit=True), names)  # noqa: S102


def compare(block: Block, output: str) -> None:
    """Hold a block to what its comments say that it prints."""
    said = SAID.findall(block.text)
    if said:
        lines = output.splitlines()
        assert len(lines) == len(said), f"{name(block.page)}:{block.line} printed {lines}"
        wrong = [(line, comment) for line, comment in zip(lines, said, strict=True) if not comment.startswith(line)]
        assert not wrong, f"{name(block.page)}:{block.line}"


def close(names: dict[str, Any]) -> None:
    """Close the storages and engines of a page: closing twice does nothing."""
    for value in [value for value in names.values() if not isinstance(value, type)]:
        storage = getattr(value, "storage", value)
        if hasattr(storage, "operations"):
            storage.close()
        elif isinstance(value, Engine):
            value.dispose()


def test_few_blocks_are_not_run() -> None:
    excused = [block for page in PAGES for block in blocks(page, "python") if block.excuse]
    assert len(excused) * 10 <= sum(len(blocks(page, "python")) for page in PAGES), excused
