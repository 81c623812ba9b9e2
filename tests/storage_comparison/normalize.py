"""What storages are free to decide about any answer, and what is left of an answer without it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgjq.storage.base import Lease
from pgjq.testing.clock import START

if TYPE_CHECKING:
    from tests.storage_comparison.subject import Subject


def plain(answer: Any, subject: Subject) -> Any:  # noqa: PLR0911
    """Return an answer without what storages are free to decide.

    * Generated ids and a storage's own key of a lease are its own business; ids are named by their order.
    * Microseconds are exact, fractions of them are not. A moment may be told in any time zone.
    """
    match answer:
        case str():
            return subject.plain(answer)
        case float():
            return round(answer, 6)
        case datetime():
            return f"{(answer - START).total_seconds():+g} s"
        case Exception():
            return type(answer).__name__, subject.plain(str(answer))
        case Lease():
            return "Lease", answer.queue, subject.plain(answer.id), answer.number
        case dict():
            return {plain(key, subject): plain(value, subject) for key, value in answer.items()}
        case tuple() if hasattr(answer, "_fields"):
            return type(answer).__name__, {name: plain(getattr(answer, name), subject) for name in answer._fields}
        case list() | tuple():
            return [plain(item, subject) for item in answer]
        case _ if is_dataclass(answer):
            return type(answer).__name__, {f.name: plain(getattr(answer, f.name), subject) for f in fields(answer)}
        case _:
            return answer
