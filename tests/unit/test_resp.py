"""What a Redis says is read the same however it is cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions

from pgjq.storage.redis.resp import INCOMPLETE, pack, reply_reader

SAID = (
    b"+OK\r\n:-7\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n$6\r\na\r\nb\r\n\r\n"
    b"*3\r\n$1\r\nx\r\n*2\r\n:1\r\n*1\r\n$2\r\n\r\n\r\n$-1\r\n*2\r\n*0\r\n+last\r\n"
)
READ: list[Any] = [b"OK", -7, b"", None, None, [], b"a\r\nb\r\n", [b"x", [1, [b"\r\n"]], None], [[], b"last"]]


def replies(*pieces: bytes) -> list[Any]:
    reader, read = reply_reader(), list[Any]()
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.gets()) is not INCOMPLETE:
            read.append(reply)
    return read


@pytest.mark.parametrize("size", [*range(1, 40), len(SAID)])
def test_pieces_of_any_size(size: int) -> None:
    assert replies(*(SAID[start : start + size] for start in range(0, len(SAID), size))) == READ


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (b"NOSCRIPT No matching script.", exceptions.NoScriptError, "No matching script."),
        (b"NOAUTH Authentication required.", exceptions.AuthenticationError, "Authentication required."),
        (b"WRONGPASS invalid", exceptions.AuthenticationError, "invalid"),
        (b"ERR AUTH <password> called without", exceptions.AuthenticationError, "AUTH <password> called without"),
        (b"NOPERM no", exceptions.NoPermissionError, "no"),
        (b"MOVED 3999 127.0.0.1:6381", exceptions.AskError, "3999 127.0.0.1:6381"),
        (b"READONLY You can't write", exceptions.ResponseError, "READONLY You can't write"),
        (b"ERR \xff", exceptions.ResponseError, "\ufffd"),
    ],
)
def test_errors_are_those_of_the_driver(said: bytes, kind: type[Exception], text: str) -> None:
    error, after = replies(b"-%b\r\n+OK\r\n" % said)
    assert isinstance(error, kind)
    assert (str(error), after) == (text, b"OK")


def test_bytes_that_are_not_of_the_protocol_are_a_lost_connection() -> None:
    with pytest.raises(exceptions.ConnectionError):
        replies(b"HTTP/1.1 400 Bad Request\r\n")


def test_commands_are_packed_as_bytes() -> None:
    assert pack("SET", b"\x00", 7, "\u00fc") == b"*4\r\n$3\r\nSET\r\n$1\r\n\x00\r\n$1\r\n7\r\n$2\r\n\xc3\xbc\r\n"
