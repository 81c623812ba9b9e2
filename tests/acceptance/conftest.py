"""A processes for each acceptance test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq import PostgresStorage


@pytest.fixture
def processes(database: str, postgres: PostgresStorage) -> Iterator[Processes]:
    """An empty database, without sessions yet."""
    with Processes(database, postgres) as empty:
        yield empty
