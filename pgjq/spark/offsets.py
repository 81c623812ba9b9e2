"""Offsets of a stream, and which of them a server can continue from.

An offset has a transaction number, the server's identifier, its timeline, and the newest row before the number. A
server counts transactions for itself, and starts a new timeline when a standby is promoted or a backup is restored. The
new timeline uses numbers again that the old one used after the fork.

* Another server: the offset is refused.
* The number is beyond the server's newest transaction: the server has lost transactions, and the offset is refused.
* Another timeline that has the offset's row: the fork came after that row, whose transaction is the last one that
  counts. The stream continues after it, and neither loses nor repeats a row.
* Another timeline without that row: the fork may have come before it. The offset is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgjq.errors import StorageError

if TYPE_CHECKING:
    from pgjq.spark.columns import View
    from pgjq.storage.postgres.oneshot import OneShotConnection

Offset = dict[str, Any]

_REMEDY: Final = "start the stream with a new checkpoint, and to continue from a point in time with the option {}"
_SINCE: Final = {"history": "finishedAfter", "events": "eventAfter"}


class OffsetError(StorageError):
    """This server cannot continue from an offset.

    `reason` says why; the message also says what to do.
    """

    def __init__(self, reason: str, view: View) -> None:
        super().__init__(f"{reason}; {_REMEDY.format(_SINCE[view])}")
        self.reason = reason


class Server(NamedTuple):
    """A server: identifier, timeline, newest transaction, and where rows can no longer change."""

    identifier: str
    timeline: int
    until: int
    newest: int


def make_offset(here: OneShotConnection, view: View, server: Server, since: int, until: int) -> Offset:
    """Return the offset at a transaction number; `since` is the number of the offset before it."""
    found = here.fetch("last_stream_row", {"view": view, "since": since, "until": until})
    last = [str(value) for value in found[0]] if found else None
    return {"sys": server.identifier, "tli": server.timeline, "xid": str(until), "last": last}


def read_offset(here: OneShotConnection, view: View, server: Server, offset: Offset) -> int:
    """Return the transaction from which this server continues an offset; raise if it cannot."""
    number, timeline = int(offset["xid"]), offset.get("tli")
    if offset.get("sys") != server.identifier:
        raise OffsetError(
            f"this checkpoint is of another PostgreSQL server ({offset.get('sys')}, and this is {server.identifier}): "
            "transactions are numbered by each server for itself",
            view,
        )
    if number > server.newest:
        raise OffsetError(
            f"this checkpoint has read transactions to {number}, and the server's newest is {server.newest}: "
            "the server was restored, or is a standby that was promoted without them",
            view,
        )
    if timeline == server.timeline or not number:
        return number
    last = offset.get("last")
    if last is None or not _has_row(here, view, last):
        raise OffsetError(
            f"this checkpoint is of timeline {timeline}, and the server's is {server.timeline}: "
            "a standby was promoted or a backup was restored, without the last row that the stream has read",
            view,
        )
    return int(last[0]) + 1


def _has_row(here: OneShotConnection, view: View, last: list[str]) -> bool:
    named = dict(zip(("xid", "n", "at"), last, strict=True))
    return here.fetch("stream_row_exists", {"view": view} | named)[0][0]
