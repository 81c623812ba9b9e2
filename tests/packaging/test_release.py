"""`make release-check`: each thing that it looks at is missed when it is wrong; released files stay as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packaging.release import FROZEN, archive_problems, edited_files, freeze, frozen_files, problems

ROOT = Path(__file__).parents[2]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A checkout as it is when everything is ready to be released."""
    for folder in ("migrations", "sql"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [0.1.0] - 2026-11-18\n\n- Everything.\n")
    (tmp_path / "UPGRADING.md").write_text("## 0.1.0\n\nThe first version.\n")
    (tmp_path / FROZEN).write_text("")
    freeze(tmp_path)
    return tmp_path


def test_files_that_a_release_contains_were_not_edited() -> None:
    assert edited_files(ROOT) == []


def test_a_checkout_that_is_ready_has_no_problems(released: Path) -> None:
    assert problems(released) == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("pyproject.toml", '[project]\nversion = "0.1.0.dev0"\n', "the version is 0.1.0.dev0"),
        ("CHANGELOG.md", "## [Unreleased]\n\n- Everything.\n", r"no section ## [0.1.0] - YYYY-MM-DD"),
        ("CHANGELOG.md", "## [0.1.0] - 2026-11-18\n\n## [0.0.9] - 2026-01-01\n- Old.\n", "no section ## [0.1.0]"),
        ("UPGRADING.md", "## 0.1 (unreleased)\n\nThe first version.\n", "no section ## 0.1.0"),
        ("sql/functions/0001_claim.sql", "select 1;\n", "sql/functions/0001_claim.sql: a release contains it"),
        ("migrations/versions/0001_initial.py", "", "migrations/versions/0001_initial.py: a release contains it"),
        ("sql/views/0001_new.sql", "select 1;\n", "1 files are not frozen, sql/views/0001_new.sql"),
        ("migrations/versions/0002_next.py", "", "SCHEMA_VERSION is 1, the newest revision is 2"),
    ],
)
def test_what_is_not_ready_is_named(released: Path, path: str, text: str, problem: str) -> None:
    (released / path).write_text(text)
    found = problems(released)
    assert any(problem in each for each in found), found


def test_a_released_file_that_was_removed_is_named(released: Path) -> None:
    (released / "sql/functions/0001_claim.sql").unlink()
    assert edited_files(released) == ["sql/functions/0001_claim.sql"]


def test_freezing_again_keeps_the_hashes_of_what_was_released(released: Path) -> None:
    before = frozen_files(released)
    (released / "sql/functions/0001_claim.sql").write_text("select 1;\n")
    freeze(released)
    assert frozen_files(released) == before


def test_archives_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    assert len(archive_problems(tmp_path, "0.1.0")) == 2
    for name in ("pgjq-0.1.0-py3-none-any.whl", "pgjq-0.1.0.tar.gz"):
        (tmp_path / name).write_bytes(b"not an archive")
    (problem,) = archive_problems(tmp_path, "0.1.0")
    assert problem.startswith("twine check: ")
