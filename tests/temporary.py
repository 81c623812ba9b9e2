"""A temporary directory for each run of the tests.

By default pytest keeps its directories in /tmp/pytest-of-USER, and every run of that user closes it to other users when
it begins. If root runs the tests, the embedded PostgreSQL runs as another user, so a second run would take the files of
the first one's servers away from them. Give `--basetemp` to choose the directory, and to keep it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

OURS = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)  # pytest reads the option in the same hook.
def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None:
        config.stash[OURS] = Path(tempfile.mkdtemp(prefix="pgjq-tests-"))
        config.option.basetemp = config.stash[OURS] / "run"


def pytest_unconfigure(config: pytest.Config) -> None:
    if OURS in config.stash:
        shutil.rmtree(config.stash[OURS], ignore_errors=True)
