"""A process that dies at a chosen call to the operating system, in the middle of whatever a storage was doing.

A parent process has everything imported and forks a child for each line that it reads: a directory, the number of
the call to die at, and from which size on the journal is written anew. The child writes the number of each step of the
sequence that it was answered for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

CALLS = ("open", "write", "fsync", "fdatasync", "rename", "ftruncate", "link", "unlink", "mkdir", "utime")
real = {name: getattr(os, name) for name in CALLS}


class CallCounter:
    """Counts calls, and dies at one of them: in the middle if it writes, else before it."""

    def __init__(self) -> None:
        self.left = -1

    def wrap(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.left == 0:
                if name == "write":
                    real["write"](args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return real[name](*args, **kwargs)

        return call


counter = CallCounter()
for wrapped in CALLS:
    setattr(os, wrapped, counter.wrap(wrapped))

# After the calls were wrapped, so that no module has imported the real ones.
from pgjq import FileStorage  # noqa: E402
from pgjq.storage.file import replica  # noqa: E402
from pgjq.testing import ManualClock  # noqa: E402
from tests.file.operations import Operations  # noqa: E402


def run_until_call(directory: str, number: int, least: int, answers: int) -> None:
    replica.LEAST, replica.GROWTH = least, 0 if least == 0 else 3
    clock = ManualClock()
    counter.left = number
    storage = FileStorage(directory, clock=clock)
    for step in Operations(storage, clock).steps:
        step()
        real["write"](answers, b".")
    storage.close()


def main() -> None:
    for line in sys.stdin:
        hears, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hears)
            run_until_call(*json.loads(line), tells)
            os._exit(0)
        os.close(tells)
        answered = len(os.read(hears, 1000)) if (status := os.waitpid(pid, 0)[1]) >= 0 else 0
        os.close(hears)
        print(json.dumps([status, answered]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
