"""One connection of an event loop, shared by its callers; replies come in command order.

* It is a protocol of asyncio without streams: their work, and redis-py's, around a single command takes longer than the
  server's reply.
* No command is sent twice. The reply to a caller that has stopped waiting, or whose deadline (`pgjq.deadline`) is
  over, is discarded.
* If a reply is due and the server has been silent for too long, the connection is closed, and all its commands fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final, cast

from redis.exceptions import ConnectionError as Lost

from pgjq.deadline import LOOK_SECONDS, NO_ANSWER, current_deadline
from pgjq.storage.redis.resp import INCOMPLETE, reply_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.deadline import Deadline
    from pgjq.storage.redis.address import Address

    OnMessage = Callable[[bytes], None]

MESSAGE: Final = b"message"
REST_SECONDS: Final = 1.0


async def open_pipelined_connection(address: Address, on_message: OnMessage | None = None) -> PipelinedConnection:
    """Connect; `on_message` is called with each message on a subscribed channel."""
    connection = await address.open_protocol(lambda: PipelinedConnection(address.patience, on_message))
    try:
        for command in address.handshake:
            await connection.ask(command)
    except BaseException:
        connection.close()
        raise
    return connection


class PipelinedConnection(asyncio.Protocol):
    """A connection that many callers share."""

    _transport: asyncio.Transport

    def __init__(self, patience: float | None, on_message: OnMessage | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = inf if patience is None else patience
        self._on_message = on_message
        self._pending: deque[tuple[asyncio.Future[Any], float, Deadline]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._replies = reply_reader()
        self._leaving = False
        self._used_at = self._received_at = self._loop.time()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def is_open(self) -> bool:
        """Return whether commands may be sent."""
        return not (self._leaving or self._transport.is_closing())

    def is_long_idle(self) -> bool:
        """Return whether it has been idle so long that a loss may not have been noticed yet."""
        return self._loop.time() > self._used_at + REST_SECONDS

    def ask(self, command: bytes) -> asyncio.Future[Any]:
        """Send a command and return a future of its reply."""
        if self.lost.done():
            raise Lost("the connection was lost")
        answer, self._used_at = self._loop.create_future(), self._loop.time()
        self._pending.append((answer, self._used_at, current_deadline()))
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK_SECONDS, self._check_deadlines)
        self._transport.write(command)
        return answer

    def leave(self) -> None:
        """Accept no more commands; close when no caller waits for a reply."""
        self._leaving = True
        for answer, _, _ in self._pending:
            answer.add_done_callback(self._close_unless_awaited)
        self._close_unless_awaited()

    def close(self) -> None:
        """Close now. Pending commands get no reply."""
        if self._watch is not None:
            self._watch.cancel()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read replies and messages."""
        self._received_at = self._loop.time()
        self._replies.feed(data)
        try:
            while (reply := self._replies.gets()) is not INCOMPLETE:
                self._take(reply)
        except Lost as error:  # These bytes are not of the protocol.
            self.connection_lost(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending commands."""
        self._leaving = True
        self.close()
        for answer, _, _ in self._pending:
            if not answer.done():
                answer.set_exception(Lost(f"the connection was lost: {exc or 'the server closed it'}"))
        self._pending.clear()
        if not self.lost.done():
            self.lost.set_result(None)

    def _take(self, reply: Any) -> None:
        if self._on_message is not None and isinstance(reply, list) and reply[0] == MESSAGE:
            self._on_message(cast("list[bytes]", reply)[2])
            return
        if not self._pending:
            self.close()  # A reply without a command: all later replies would go to the wrong callers.
            return
        answer, _, _ = self._pending.popleft()
        if answer.done():
            return
        if isinstance(reply, Exception):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)

    def _close_unless_awaited(self, _: object = None) -> None:
        if all(answer.done() for answer, _, _ in self._pending):
            self.close()

    def _check_deadlines(self) -> None:
        """Fail commands past their deadline; close if the server owes a reply and stays silent."""
        self._watch = None
        for answer, _, deadline in self._pending:
            if not (deadline.left or answer.done()):
                answer.set_exception(TimeoutError(NO_ANSWER))
        if self._pending and max(self._pending[0][1], self._received_at) + self._patience <= self._loop.time():
            self.connection_lost(TimeoutError(NO_ANSWER))
        elif self._pending:
            self._watch = self._loop.call_later(LOOK_SECONDS, self._check_deadlines)
