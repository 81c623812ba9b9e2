"""Arguments of a demo worker's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Assignment:
    """Command-line arguments; the database is in PGJQ_URL: every user can read a command line."""

    name: str
    queue: str
    pause: float

    def words(self) -> list[str]:
        return [self.name, self.queue, str(self.pause)]

    @classmethod
    def read(cls, words: Sequence[str]) -> Assignment:
        name, queue, pause = words
        return cls(name, queue, float(pause))
