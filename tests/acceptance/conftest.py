"""A stage for each acceptance test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.cast import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq import PostgresStorage


@pytest.fixture
def stage(database: str, postgres: PostgresStorage) -> Iterator[Stage]:
    """An empty database, and nobody on it yet."""
    with Stage(database, postgres) as empty:
        yield empty
