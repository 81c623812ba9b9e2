"""One blocking connection, used by one thread at a time.

* The socket times out in short steps. After each, the caller's deadline (`pgjq.deadline`) and the silence of the server
  are checked: so no wait passes a deadline, also in the middle of a command or of a reply.
* After an interrupted call the connection must be closed, because the reply may still arrive.
"""

from __future__ import annotations

import select
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.exceptions import ConnectionError as Lost

from pgjq.deadline import LOOK_SECONDS, NO_ANSWER, current_deadline
from pgjq.storage.redis.resp import INCOMPLETE, reply_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.redis.address import Address

A = TypeVar("A")
R = TypeVar("R")

READ_BYTES: Final = 65_536


class SyncConnection:
    """A connection that has been opened, with the handshake done."""

    def __init__(self, address: Address) -> None:
        self._patience = inf if address.patience is None else address.patience
        self._replies = reply_reader()
        self._socket = address.open_socket()
        self._socket.settimeout(LOOK_SECONDS)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        try:
            for command in address.handshake:
                self.ask(command)
        except BaseException:
            self.close()
            raise

    def ask(self, command: bytes) -> Any:
        """Send a command and return its reply, or raise its error; TimeoutError at the deadline."""
        rest = memoryview(command)
        while rest:
            rest = rest[self._in_time(self._socket.send, rest) :]
        while (reply := self._replies.gets()) is INCOMPLETE:
            self._replies.feed(self._in_time(self._receive, READ_BYTES))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def is_stale(self) -> bool:
        """Return whether the server closed the connection, or sent unexpected data, while idle."""
        return bool(self._readable.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size)
        if not data:
            raise Lost("the server closed the connection")
        return data

    def _in_time(self, call: Callable[[A], R], argument: A) -> R:
        """Repeat a call that times out until the deadline, or until the silence is too long."""
        silence = 0.0
        while True:
            try:
                return call(argument)
            except TimeoutError:
                silence += LOOK_SECONDS
                if silence >= self._patience or not current_deadline().left:
                    raise TimeoutError(NO_ANSWER) from None
