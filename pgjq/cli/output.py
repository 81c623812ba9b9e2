"""Output of a command: text for people, or with `--json` one JSON document for programs.

A result is a sentence, a record or a table. In a terminal, rich draws tables within its width; elsewhere they are plain
columns of any width, without boxes or colours. Progress is shown on stderr, and only in a terminal.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, fields
from io import StringIO
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pgjq.cli.formatting import NOTHING, document, printable, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from rich.console import JustifyMethod
    from rich.progress import TaskID

    Columns = Mapping[str, Callable[[Any], Any]]

COLOURS: Final = {
    "queued": "blue",
    "processing": "cyan",
    "failing": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}
FOLDED: Final = frozenset(("id", "error", "means", "name", "queue", "queues", "singleton_key", "dead_letter"))
LEAST: Final = 12  # The narrowest folded column; the terminal wraps a table that still does not fit.
GAP: Final = 2
WIDE: Final = 100_000  # Files and pipes get uncut lines.


class Meter:
    """A progress meter: call it with the number done so far."""

    def __init__(self, show: Callable[[int], None] = lambda _: None) -> None:
        self.done = 0
        self._show = show

    def __call__(self, done: int) -> None:
        self.done = done
        self._show(done)


class Output:
    """The result of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False)

    def say(self, sentence: str, **data: Any) -> None:
        """Write a sentence; `data` is the same result for programs."""
        click.echo(document(data) if self.as_json else printable(sentence))

    def record(self, value: Any, **lists: list[Any]) -> None:
        """Write one object with all its fields, and lists that belong to it, each as a table."""
        if self.as_json:
            click.echo(document({**asdict(value), **lists}))
            return
        known = {field.name: getattr(value, field.name) for field in fields(value)}
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, cell in known.items():
            if cell not in (None, ()):
                table.add_row(name, _cell(name, cell))
            if trace := getattr(cell, "traceback", None):
                table.add_row("traceback", _cell("traceback", trace.rstrip()))
        self._draw(table)
        for name, values in lists.items():
            if values:
                click.echo(f"\n{name}")
                self._table(values, {field.name: attrgetter(field.name) for field in fields(values[0])})

    def rows(self, values: Iterable[Any], columns: Columns) -> None:
        """Write several objects; a JSON document is written as they arrive."""
        if self.as_json:
            self._array(values)
        else:
            self._table(list(values), columns)

    def note(self, sentence: str) -> None:
        """Write a message to stderr, beside the result."""
        click.echo(printable(sentence), err=True)

    @contextmanager
    def progress(self, doing: str, total: int | None = None) -> Generator[Meter]:
        """Show the progress of one step."""
        with self._bar() as bar:
            task = bar.add_task(doing, total=total)
            yield Meter(lambda done: bar.update(task, completed=done))

    @contextmanager
    def stages(self) -> Generator[Callable[[str, int, int], None]]:
        """Show the progress of several steps; call the result with name, number and total."""
        steps: dict[str, TaskID] = {}
        with self._bar() as bar:

            def show(step: str, done: int, total: int) -> None:
                if step not in steps:
                    steps[step] = bar.add_task(step)
                bar.update(steps[step], completed=done, total=total)

            yield show

    def _bar(self) -> Progress:
        console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=console, transient=True, disable=self._is_quiet(console))

    def _is_quiet(self, console: Console) -> bool:
        return self.as_json or not console.is_terminal

    def _array(self, values: Iterable[Any]) -> None:
        """Write one JSON array, an object per line; no parser accepts it if it is cut off."""
        before, end = "[", "[]"
        for value in values:
            click.echo(f"{before}\n{document(value)}", nl=False)
            before, end = ",", "\n]"
        click.echo(end)

    def _table(self, values: list[Any], columns: Columns) -> None:
        table = Table(box=None, pad_edge=False)
        for name, read in columns.items():
            _add_column(table, name, [read(value) for value in values])
        for value in values:
            table.add_row(*(_cell(name, read(value)) for name, read in columns.items()))
        self._draw(table)

    def _draw(self, table: Table) -> None:
        if self._console.is_terminal:
            least = sum(column.min_width or 1 for column in table.columns) + GAP * (len(table.columns) - 1)
            self._console.width = max(least, self._console.width)
            self._console.print(table)
            return
        paper = StringIO()
        Console(file=paper, width=WIDE, color_system=None).print(table)
        lines = paper.getvalue().splitlines()
        click.echo("\n".join(line.rstrip() for line in lines))


def _add_column(table: Table, name: str, values: list[Any]) -> None:
    """Add a column as wide as it must be: rich would cut other columns to make room for one."""
    longest = max(cell_len(text) for text in (name, *(shown(name, value) for value in values)))
    folds = name in FOLDED
    least = min(longest, LEAST) if folds else longest
    table.add_column(name, justify=_justify(values), overflow="fold", min_width=least, no_wrap=not folds)


def _cell(name: str, value: Any) -> Text:
    text = shown(name, value)
    return Text(text, style="dim" if text == NOTHING else COLOURS.get(text, ""))


def _justify(values: Iterable[Any]) -> JustifyMethod:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in values if value is not None]
    return "right" if numbers and all(numbers) else "left"
