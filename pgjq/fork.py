"""Whether an object was made in this process, or inherited by a fork.

A forked child has copies of its parent's objects, but not its threads, and it shares its sockets: using or closing one
would break the parent's session. So an object that holds such things begins anew in a child.
"""

from __future__ import annotations

import os


class ForkCheck:
    """Remembers the process that made it."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def happened(self) -> bool:
        """Whether this process is a child of the one that made it."""
        return self._process != os.getpid()
