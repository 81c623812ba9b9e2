"""The Redis protocol, version 2: hiredis packs commands and reads replies.

Errors are redis-py's classes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import hiredis
from redis import exceptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Word = bytes | str | int
INCOMPLETE: Final[Any] = object()

# Codes at the beginning of an error that pgjq acts on; the other errors keep their code in the text.
_CLASSES: Final[Mapping[str, type[exceptions.ResponseError]]] = MappingProxyType(
    {
        "ASK": exceptions.AskError,
        "ERR": exceptions.ResponseError,
        "MOVED": exceptions.MovedError,
        "NOPERM": exceptions.NoPermissionError,
        "NOSCRIPT": exceptions.NoScriptError,
    }
)


def pack(*words: Word) -> bytes:
    """Write a command."""
    driver: Any = hiredis
    return driver.pack_command(words)


def reply_reader() -> Any:
    """Return an incremental reader: `feed` bytes; `gets` returns a reply or INCOMPLETE.

    An error reply is returned, not raised. Bytes that are not of the protocol raise a `ConnectionError` of redis-py.
    """
    driver: Any = hiredis
    return driver.Reader(protocolError=exceptions.ConnectionError, replyError=read_error, notEnoughData=INCOMPLETE)


def read_error(text: str) -> Exception:
    """Return an error reply as the error that redis-py raises for it."""
    code, _, rest = text.partition(" ")
    if code in {"NOAUTH", "WRONGPASS"} or text.startswith("ERR AUTH "):
        return exceptions.AuthenticationError(rest)
    kind = _CLASSES.get(code)
    return exceptions.ResponseError(text) if kind is None else kind(rest)


def version(info: bytes) -> str:
    """Return the version from a reply to INFO; Valkey's is the Redis version it implements."""
    lines = (line.partition(b":") for line in info.splitlines())
    return next(value.decode() for name, _, value in lines if name == b"redis_version")


def handshake(username: str | None, password: str | None, client_name: str | None, database: Any) -> Sequence[bytes]:
    """Return the commands that begin a connection."""
    login = (username, password or "") if username else (password,) if password else ()
    commands: list[tuple[Word, ...]] = [("AUTH", *login)] if login else []
    if client_name:
        commands.append(("CLIENT", "SETNAME", client_name))
    if database:
        commands.append(("SELECT", str(database)))
    return [pack(*command) for command in commands]
