"""Tests of the run's temporary directory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from pathlib import Path


def test_another_run_of_pytest_leaves_the_servers_of_this_one_alone(server: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): pass")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "test_it.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    with psycopg.connect(server) as connection:
        assert connection.execute("select pg_control_system()").fetchone() is not None
