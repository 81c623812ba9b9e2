"""Who hears what happens in this process.

A bus belongs to one queue, or to one reaper. A callback that raises becomes an `error` event, and an `error` callback
that raises becomes a log line: nothing that a callback does can stop a worker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, get_args

from pgjq.errors import ValidationError
from pgjq.job import EventName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.job import Event

BusName = EventName | Literal["error"]
# Warnings are about a queue as a whole; a leader finds them, and `client.on` hears them.
NAMES: tuple[str, ...] = ("error", *(name for name in get_args(EventName) if name != "warning"))


class Bus:
    """Callbacks by the name of what they want to hear."""

    def __init__(self, logger: logging.Logger | None = None, names: Sequence[str] = NAMES) -> None:
        self._names = names
        self.logger = logger or logging.getLogger("pgjq")
        self._callbacks: defaultdict[str, list[Callable[[Any], Any]]] = defaultdict(list)
        self._pending: set[asyncio.Task[Any]] = set()
        self.listens = False  # Whether there are callbacks for jobs, not only for errors.

    def on(self, name: str, callback: Callable[[Any], Any]) -> None:
        """Have a callback called with each event of a name; `error` gets the exception."""
        if name not in self._names:
            raise ValidationError(f"there is no event {name!r}; the events are {', '.join(self._names)}")
        if not callable(callback):
            raise ValidationError(f"a callback must be callable, not {callback!r}")
        self._callbacks[name].append(callback)
        self.listens = self.listens or name != "error"

    def wants(self, name: BusName) -> bool:
        """Tell whether anybody wants to hear: making an event costs more than asking."""
        return name in self._callbacks

    def tell(self, event: Event) -> None:
        """Call everybody who wants to hear of it."""
        for callback in self._callbacks.get(event.name, ()):
            self._call(callback, event)

    def error(self, error: Exception, what: str) -> None:
        """Report something that went wrong and that nobody can raise: to `error` callbacks, else to the log."""
        callbacks = self._callbacks.get("error", ())
        if not callbacks:
            self.logger.error("%s: %s", what, error, exc_info=error, extra={"pgjq_error": what})
        for callback in callbacks:
            self._call(callback, error)

    def _call(self, callback: Callable[[Any], Any], said: Any) -> None:
        try:
            answer = callback(said)
            if inspect.iscoroutine(answer):
                task = asyncio.get_running_loop().create_task(answer)
                self._pending.add(task)
                task.add_done_callback(self._done)
        except Exception as error:  # noqa: BLE001
            self._failed(error, said)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._pending.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failed(error, None)

    def _failed(self, error: Exception, said: Any) -> None:
        if isinstance(said, Exception):
            self.logger.error("an error callback failed: %s", error, exc_info=error)
        else:
            self.error(error, "a callback failed")
