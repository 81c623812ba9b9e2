"""The table in the documents says what the storages declare."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pgjq
from pgjq.storage.base import Promises

DOCUMENT = Path(__file__).parents[2] / "docs" / "storages.md"


def table() -> list[list[str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


@pytest.mark.parametrize("storage", [pgjq.PostgresStorage, pgjq.RedisStorage, pgjq.MemoryStorage])
def test_the_table_says_what_a_storage_declares(storage: Any) -> None:
    heading, _, *rows = table()
    column = heading.index(f"`{storage.__name__}`")
    said = {row[0].strip("`"): row[column] for row in rows if row[column] in ("yes", "no")}
    assert said == {field.name: "yes" if getattr(storage.promises, field.name) else "no" for field in fields(Promises)}
