"""Clean up when a signal ends a command."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def clean_exit() -> Generator[None]:
    """Clean up on SIGTERM, or when the terminal closes, as after Ctrl-C.

    An exception that a signal raises is lost if it hits a finaliser, and the command continues; this remembers the
    signal, so that the command does not end as if there had been none.
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
