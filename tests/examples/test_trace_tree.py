"""A trace as a tree."""

from __future__ import annotations

import subprocess
import sys

from tests.examples.conftest import EXAMPLES

TREE = """\
POST /orders
  send orders
    process orders (attempt 1: failing)  <- send orders
process orders (attempt 2: completed)  <- send orders, process orders
  POST /charges
  send mail
    process mail (attempt 1: completed)  <- send mail
"""


def test_the_tree_has_every_span() -> None:
    command = [sys.executable, EXAMPLES / "trace_tree.py"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == TREE
