"""Processes of their own, which wait for orders on a pipe.

They are processes, because threads of one interpreter would wait for each other's bytecode long before they wait for
the server, and the server is what is to be seen. Each is spawned, not forked, and ends when it is told None.
"""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.connection import Connection

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def process(target: Any, *arguments: Any) -> Generator[Connection]:
    """Run `target` with the other end of a pipe and some arguments; tell it None at the end."""
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=target, args=(there, *arguments), daemon=True)
    child.start()
    there.close()  # Else a process that dies would not be noticed here.
    try:
        yield here
        here.send(None)
        child.join()
    finally:
        child.kill()
        here.close()
