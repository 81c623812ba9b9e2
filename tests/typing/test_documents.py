"""pyright accepts the Python code of the documents and the examples.

The blocks of a page are one module, after the page's setup (tests/docs/test_code_blocks.py); blocks with a title are
files beside it. Blocks that are not run are not checked either.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import PAGES, ROOT, blocks
from tests.typing import checkers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("typing")
PAGE_SETUP = ROOT / "tests" / "docs" / "page_setup"
CONFIG: dict[str, object] = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    # Running a page finds names that do not exist, and the shortest example may read the status of a job that is there.
    "reportUndefinedVariable": False,
    "reportOptionalMemberAccess": False,
}
# Its code needs a Django project, which tests/django_backend makes and runs; Django has no annotations.
UNTYPED = ROOT / "docs" / "django.md"
# `open_storage` returns what all storages have; a page that passes it PostgreSQL's address knows which one it gets.
KNOWN = 'Cannot access attribute "conninfo" for class "Storage"'


def write_page(page: Path, folder: Path) -> None:
    """Write the code of a page, as the modules that its reader would have."""
    folder.mkdir(parents=True)
    code = [block for block in blocks(page, "python") if block.excuse is None]
    setup = PAGE_SETUP / f"{page.stem.lower()}.py"
    begin = ["import pgjq", setup.read_text() if setup.exists() else ""]
    located = [f"# {page.name}, line {block.line}\n{block.text}" for block in code if block.title is None]
    (folder / "page.py").write_text("\n".join([*begin, *located]))
    for block in code:
        if block.title is not None and block.title.endswith(".py"):
            (folder / block.title).write_text(block.text)


def place(report: checkers.Report, directory: Path) -> str:
    """Say where an error is: the line of the page that the comment above it names, and the message."""
    above = (directory / report.file).read_text().splitlines()[: report.line]
    block = next((line for line in reversed(above) if line.startswith("# ") and ", line " in line), report.file)
    return f"{block} ({above[-1].strip()}): {report.message}"


def test_pyright_accepts_the_documents_and_the_examples(tmp_path: Path) -> None:
    pages = [page for page in PAGES if page != UNTYPED and blocks(page, "python")]
    for page in pages:
        write_page(page, tmp_path / page.relative_to(ROOT).with_suffix(""))
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path / "examples")
    found = checkers.pyright(tmp_path, CONFIG)
    assert [place(report, tmp_path) for report in found if not report.message.startswith(KNOWN)] == []
    assert len(pages) > 10
