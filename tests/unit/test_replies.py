"""What a Redis says is read the same however it is cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import NoScriptError, ResponseError

from pgjq.storage.redis.resp import RespReader

SAID = (
    b"+OK\r\n:-7\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n$6\r\na\r\nb\r\n\r\n"
    b"*3\r\n$1\r\nx\r\n*2\r\n:1\r\n*1\r\n$2\r\n\r\n\r\n$-1\r\n*2\r\n*0\r\n+last\r\n"
)
READ: list[Any] = [b"OK", -7, b"", None, None, [], b"a\r\nb\r\n", [b"x", [1, [b"\r\n"]], None], [[], b"last"]]


@pytest.mark.parametrize("size", [*range(1, 40), len(SAID)])
def test_pieces_of_any_size(size: int) -> None:
    read: list[Any] = []
    replies = RespReader(read.append)
    for start in range(0, len(SAID), size):
        replies.feed(SAID[start : start + size])
    assert read == READ


def test_errors_are_handed_on_as_the_driver_names_them() -> None:
    read: list[Any] = []
    RespReader(read.append).feed(b"-NOSCRIPT No matching script.\r\n-ERR \xff\r\n+OK\r\n")
    assert [type(one) for one in read] == [NoScriptError, ResponseError, bytes]
