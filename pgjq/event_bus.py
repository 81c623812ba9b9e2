"""Who hears what happens in this process.

A bus belongs to one queue, or to one reaper. A callback that raises becomes an `error` event, and an `error` callback
that raises becomes a log line: nothing that a callback does can stop a worker, not even `sys.exit()`.
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
# Warnings are about a queue as a whole; a leader finds them, and `client.on` hears them.
NAMES: tuple[str, ...] = ("error", *(name for name in get_args(EventName) if name != "warning"))


class EventBus:
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

    def wants(self, name: BusEventName) -> bool:
        """Tell whether anybody wants to hear: making an event costs more than asking."""
        return name in self._callbacks

    def tell(self, event: Event) -> None:
        """Call everybody who wants to hear of it."""
        for callback in self._callbacks.get(event.name, ()):
            self._call(callback, event)

    def error(self, error: BaseException, what: str) -> None:
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
                task = asyncio.get_running_loop().create_task(self._finish(answer, said))
                self._pending.add(task)
                task.add_done_callback(self._pending.discard)
        except Exception as error:  # noqa: BLE001
            self._failed(error, said)
        except BaseException as error:
            if _runs_on_main_thread():
                raise  # Perhaps Ctrl-C, which is for the caller of `enqueue` to decide about.
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
    """Tell whether this is code that the main thread called, outside every event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.current_thread() is threading.main_thread()
    return False
