"""The demo's progress: a bar in a terminal, a few lines in a file or a pipe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from pgjq.cli.demo.worker_processes import WorkerProcess, WorkerThreads
    from pgjq.client import Client

LOOK_SECONDS = 0.1
LINES = 4  # In a file.


class Bar:
    """The number of a queue's completed jobs, by its statistics."""

    def __init__(self, console: Console, client: Client, queue: str, total: int) -> None:
        self._console = console
        self._client = client
        self._queue = queue
        self._total = total
        self._lines = 0
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task("completed", total=total)

    def follow(self, share: float, workers: Sequence[WorkerProcess | WorkerThreads]) -> None:
        """Show the progress until a share of the jobs is completed; check that these workers live."""
        self.follow_until(lambda completed: completed >= share * self._total, workers)

    def follow_until(self, enough: Callable[[int], bool], workers: Sequence[WorkerProcess | WorkerThreads]) -> None:
        """Show the progress until `enough` returns true; check that these workers live."""
        while not enough(self._look()):
            for worker in workers:
                worker.check()
            time.sleep(LOOK_SECONDS)

    def _look(self) -> int:
        completed = self._client.get_queue_stats(self._queue).completed
        self._show(completed)
        return completed

    def _show(self, completed: int) -> None:
        self._progress.update(self._task, completed=completed)
        line = LINES * completed // self._total
        if not self._console.is_terminal and line > self._lines:
            self._lines = line
            self._console.print(f"  {completed:,} of {self._total:,} completed")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
