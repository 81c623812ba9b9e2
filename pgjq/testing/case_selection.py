"""Which cases of a conformance suite apply to a storage.

`requires` marks a case that needs a capability which only some storages have. If a suite class names the `capabilities`
of its storage, pytest collects only the cases that apply, so that a report lists no meaningless skips.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.storage.base import Capabilities

C = TypeVar("C", bound="type | Callable[..., Any]")

MARK = "_pgjq_requires"


def requires(*capabilities: str) -> Callable[[C], C]:
    """Mark a case, or every case of a class, as one that needs all of these `Capabilities`."""

    def mark(target: C) -> C:
        for case in _members(target):
            if getattr(case, "__name__", "").startswith("test_"):
                setattr(case, MARK, (*getattr(case, MARK, ()), *capabilities))
        return target

    return mark


def _members(target: Any) -> Iterable[Any]:
    return vars(target).values() if inspect.isclass(target) else [target]


class Applicable:
    """A suite whose subclasses leave out cases that their storage's `capabilities` do not cover."""

    capabilities: ClassVar[Capabilities | None] = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.capabilities is not None:
            for name in dir(cls):
                needed = getattr(getattr(cls, name), MARK, ())
                if not all(getattr(cls.capabilities, promise) for promise in needed):
                    setattr(cls, name, None)
