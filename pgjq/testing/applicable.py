"""Which cases of a conformance suite apply to a storage.

A case that needs something only some storages promise is marked with `requires`. A suite class that names the
`promises` of its storage has no such case if the storage does not promise it: pytest does not collect it, and a report
lists no skips that say nothing.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.storage.base import Promises

C = TypeVar("C", bound="type | Callable[..., Any]")

MARK = "_pgjq_requires"


def requires(*promises: str) -> Callable[[C], C]:
    """Mark a case, or every case of a class, as one that needs all of these promises (see `Promises`)."""

    def mark(target: C) -> C:
        for case in _members(target):
            if getattr(case, "__name__", "").startswith("test_"):
                setattr(case, MARK, (*getattr(case, MARK, ()), *promises))
        return target

    return mark


def _members(target: Any) -> Iterable[Any]:
    return vars(target).values() if inspect.isclass(target) else [target]


class Applicable:
    """A suite whose subclasses leave out the cases that their storage's `promises` do not cover."""

    promises: ClassVar[Promises | None] = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.promises is not None:
            for name in dir(cls):
                needed = getattr(getattr(cls, name), MARK, ())
                if not all(getattr(cls.promises, promise) for promise in needed):
                    setattr(cls, name, None)
