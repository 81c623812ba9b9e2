"""What each storage promises is written down as it declares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.testing.capabilities_table import STORAGES, replaced

PAGE = Path(__file__).parents[2] / "docs" / "storages.md"


def test_the_table_in_the_documents_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == replaced(page), "run: python -m pgjq.testing.capabilities_table docs/storages.md"


def test_every_storage_is_in_the_table() -> None:
    public = {getattr(pgjq, name) for name in pgjq.__all__ if name.endswith("Storage")}
    assert public == set(STORAGES)


@pytest.mark.parametrize("storage", STORAGES)
def test_every_promise_is_declared(storage: Any) -> None:
    capabilities = storage.capabilities
    assert capabilities.order
    assert capabilities.notice
    assert capabilities.clock
    assert capabilities.url


def test_a_storage_in_one_process_is_refused_several() -> None:
    queue = pgjq.Queue("q", storage=pgjq.MemoryStorage())
    queue.execute(print)
    with pytest.raises(pgjq.UnsupportedError, match="one process"):
        pgjq.Worker(queue, processes=2)


def test_a_storage_without_leaders_says_so() -> None:
    with pytest.raises(pgjq.UnsupportedError, match="no leader election"):
        drive(pgjq.MemoryStorage().operations("sync").resign("reaper", "ann"))
