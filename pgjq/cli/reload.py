"""`pgjq worker --reload`: restart the worker's process when the code changes.

The old process gets SIGTERM and gives back what does not end in its grace, as always. A process that ended by itself,
because of a mistake in the code, is started again after the next change. For development only.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from pgjq.cli.log_output import logger
from pgjq.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How often a signal is looked for while nothing changes, in milliseconds.
LOOK: int = 200


class Reloader:
    """Runs this command without `--reload`, and restarts it after each change in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._command = [sys.executable, "-m", "pgjq", *(word for word in sys.argv[1:] if word != "--reload")]
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def run(self) -> None:
        """Run until a signal."""
        changes = self._changes()
        while not self._stop.is_set():
            # A session of its own: Ctrl-C must not reach it before the SIGTERM, which would count as the second signal.
            self._process = subprocess.Popen(self._command, start_new_session=True)
            try:
                changed = next(changes, None)
            finally:
                self._process.send_signal(signal.SIGTERM)
                self._process.wait()
            if changed is not None:
                logger.info("code changed, starting again", extra={"file": changed})

    def _handle(self, number: int, _frame: Any) -> None:
        del number
        if self._stop.is_set() and self._process is not None:
            self._process.kill()
        self._stop.set()

    def _changes(self) -> Iterator[str]:
        try:
            from watchfiles import PythonFilter, watch
        except ImportError as error:
            raise MissingExtraError("reload", "--reload") from error
        logger.info("watching the code", extra={"directory": str(self._directory)})
        found = watch(self._directory, watch_filter=PythonFilter(), stop_event=self._stop, rust_timeout=LOOK)
        for changes in found:
            yield min(path for _, path in changes)
