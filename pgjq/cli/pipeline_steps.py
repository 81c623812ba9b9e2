"""The progress of a pipeline's run on a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console


class Steps:
    """The steps of a run: in a terminal a live line and a line per finished step; else nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(pulse_style="cyan"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: Any = None
        self._step = ""
        self._detail = ""
        self._rows = 0
        self._begun = 0.0

    def begin(self, step: str) -> None:
        self._finish()
        self._step, self._detail, self._rows, self._begun = step, "", 0, time.monotonic()
        self._task = self._progress.add_task(step, total=None)

    def count(self, rows: int) -> None:
        self._rows += rows
        self.show(f"{self._rows:,} endings")

    def show(self, what: str) -> None:
        """Show the progress of a step."""
        self._detail = what
        if self._task is not None:
            self._progress.update(self._task, description=f"{self._step}: {what}")

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
            if self._console.is_terminal:
                took = f"{time.monotonic() - self._begun:6.1f} s"
                self._console.print(f"[green]✓[/] {self._step:<10} {took}  {self._detail}", highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._finish()
        self._progress.stop()
