"""Callbacks for the events of this process.

A bus belongs to one queue or one reaper. An exception in a callback becomes an `error` event, and an exception in an
`error` callback becomes a log line: no callback can stop a worker, not even with `sys.exit()`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, get_args

from pgjq.errors import ValidationError
from pgjq.job import EventName

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pgjq.job import Event

BusEventName = EventName | Literal["error"]
# A `warning` is about a whole queue, a `tick` about a schedule: `client.on` subscribes to them, wherever they happen.
NAMES: tuple[str, ...] = ("error", *(name for name in get_args(EventName) if name not in ("warning", "tick")))


class EventBus:
    """Callbacks by event name."""

    def __init__(self, logger: logging.Logger | None = None, names: Sequence[str] = NAMES) -> None:
        self._names = names
        self.logger = logger or logging.getLogger("pgjq")
        self._callbacks: defaultdict[str, list[Callable[[Any], Any]]] = defaultdict(list)
        self._pending: set[asyncio.Task[Any]] = set()
        self.listens = False  # Whether there are callbacks for jobs, not only for errors.

    def on(self, name: str, callback: Callable[[Any], Any]) -> None:
        """Call a callback with each event of a name; `error` callbacks get the exception."""
        if name not in self._names:
            raise ValidationError(f"there is no event {name!r}; the events are {', '.join(self._names)}")
        if not callable(callback):
            raise ValidationError(f"a callback must be callable, not {callback!r}")
        self._callbacks[name].append(callback)
        self.listens = self.listens or name != "error"

    def wants(self, name: BusEventName) -> bool:
        """Return whether the event has a callback: this check is cheaper than making an event."""
        return name in self._callbacks

    def publish(self, event: Event) -> None:
        """Call the callbacks for an event."""
        for callback in self._callbacks.get(event.name, ()):
            self._call(callback, event)

    def error(self, error: BaseException, what: str) -> None:
        """Report an error that has no caller to raise to: to `error` callbacks, else to the log."""
        callbacks = self._callbacks.get("error", ())
        if not callbacks:
            self.logger.error("%s: %s", what, error, exc_info=error, extra={"pgjq_error": what})
        for callback in callbacks:
            self._call(callback, error)

    def _call(self, callback: Callable[[Any], Any], said: Any) -> None:
        try:
            answer = callback(said)
            if inspect.iscoroutine(answer):
                task = asyncio.get_running_loop().create_task(self._finish(answer, said))
                self._pending.add(task)
                task.add_done_callback(self._pending.discard)
        except Exception as error:  # noqa: BLE001
            self._failed(error, said)
        except BaseException as error:
            if _runs_on_main_thread():
                raise  # It may be Ctrl-C, which the caller of `enqueue` handles.
            self._failed(error, said)

    async def _finish(self, answer: Coroutine[Any, Any, Any], said: Any) -> None:
        try:
            await answer
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  (SystemExit would end the event loop, and the worker with it)
            self._failed(error, said)

    def _failed(self, error: BaseException, said: Any) -> None:
        if isinstance(said, BaseException):
            self.logger.error("an error callback failed: %s", error, exc_info=error)
        else:
            self.error(error, "a callback failed")


def _runs_on_main_thread() -> bool:
    """Return whether the main thread called this code, outside of every event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.current_thread() is threading.main_thread()
    return False
