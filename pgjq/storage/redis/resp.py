"""Incremental reader of the Redis protocol, version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis._parsers.base import BaseParser

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_NUMBER, _ERROR, _BYTES, _LIST = b":-$*"
_END: Final = b"\r\n"
_driver: Final[Any] = BaseParser  # Maps the code at the beginning of an error to an error class.


class RespReader:
    """Calls `take` with each reply; an error is passed to it, not raised."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take
        self._data = bytearray()
        self._at = 0
        self._reading = self._read()
        next(self._reading)

    def feed(self, data: bytes) -> None:
        """Read more bytes, and pass on the replies that they complete."""
        self._data += data
        next(self._reading)
        del self._data[: self._at]
        self._at = 0

    def _read(self) -> Generator[None]:
        """Read for ever; suspend where bytes are missing, also in the middle of a reply."""
        lists: list[tuple[list[Any], int]] = []  # Incomplete lists with their lengths, each nested in the one before.
        while True:
            kind, text = yield from self._line()
            if kind == _LIST and int(text) > 0:
                lists.append(([], int(text)))
                continue
            value = (yield from self._bytes(int(text))) if kind == _BYTES else _plain(kind, text)
            while lists:
                items, count = lists[-1]
                items.append(value)
                if len(items) < count:
                    break
                value, _ = lists.pop()
            else:
                self._take(value)

    def _line(self) -> Generator[None, None, tuple[int, bytes]]:
        while (end := self._data.find(_END, self._at)) < 0:
            yield
        start, self._at = self._at, end + 2
        return self._data[start], bytes(self._data[start + 1 : end])

    def _bytes(self, size: int) -> Generator[None, None, bytes | None]:
        if size < 0:
            return None
        while len(self._data) < self._at + size + 2:
            yield
        start, self._at = self._at, self._at + size + 2
        return bytes(self._data[start : start + size])


def _plain(kind: int, text: bytes) -> Any:
    if kind == _NUMBER:
        return int(text)
    if kind == _ERROR:
        return _driver.parse_error(text.decode(errors="replace"))
    return (None if text == b"-1" else []) if kind == _LIST else text
