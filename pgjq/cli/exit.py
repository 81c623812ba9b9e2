"""Leaving in order: what a command has put somewhere is removed again, whoever tells it to end."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def leaving_in_order() -> Generator[None]:
    """Clean up when told to end, or when the terminal is closed, as after Ctrl-C.

    An exception that a signal raises is lost if it meets a finaliser, and then the command goes on; what was said is
    remembered, so that it does not end as if nothing had been said.
    """
    said: list[int] = []

    def leave(number: int, _: Any) -> None:
        said.append(number)
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in SIGNALS}
    try:
        yield
        if said:
            sys.exit(128 + said[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
