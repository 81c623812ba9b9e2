"""The examples for Airflow and Dagster parse, and the commands that they run have the options that they pass."""

from __future__ import annotations

import ast
import re

import click
import pytest

from pgjq.cli.pipeline import pipeline
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", ["airflow_nightly", "dagster_nightly"])
def test_an_example_parses_and_its_options_exist(name: str) -> None:
    source = (ROOT / "examples" / "orchestration" / f"{name}.py").read_text(encoding="utf-8")
    assert ast.parse(source).body
    known = {option for command in pipeline.commands.values() for one in command.params for option in one.opts}
    used = set(re.findall(r"--[a-z][a-z-]+", source))
    assert {"--lake", "--json"} <= used <= known
    assert isinstance(pipeline, click.Group)
