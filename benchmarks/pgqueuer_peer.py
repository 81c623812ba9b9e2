"""PgQueuer's bulk enqueue, used as its own documentation does: `Queries.enqueue` with lists, one statement a batch.

It runs on one asyncpg connection and on uvloop, which are its fastest, with durable tables, its default. It
deduplicates nothing here, because no dedupe keys are given. Payloads are bytes to PgQueuer, so its caller makes the
JSON: the clock starts, for PgQueuer as for pgjq, when the Python values are there.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from benchmarks.databases import empty_database
from benchmarks.jobs import QUEUE
from benchmarks.measure import jobs_per_second
from pgjq.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pgjq.embedded import EmbeddedServer


class PgQueuer:
    """The peer, on a connection of its own."""

    def __init__(self, runner: asyncio.Runner, conninfo: str) -> None:
        self.conninfo = conninfo
        self._runner = runner
        self._connection, self._queries = runner.run(_install(conninfo))

    def rate(self, values: Sequence[dict[str, Any]], batch: int) -> float:
        """Empty the tables, then time an enqueue of everything in batches."""
        self._runner.run(self._empty())
        rate = jobs_per_second(len(values), lambda: self._runner.run(self._enqueue(values, batch)))
        assert self._runner.run(self._connection.fetchval("select count(*) from pgqueuer")) == len(values)
        return rate

    def single_rate(self, values: Sequence[dict[str, Any]]) -> float:
        """Time an enqueue of each by itself."""
        return jobs_per_second(len(values), lambda: self._runner.run(self._enqueue_each(values)))

    def enqueue_one(self, payload: bytes) -> None:
        """Enqueue one job."""
        self._runner.run(self._queries.enqueue(QUEUE, payload))

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._connection.close())

    async def _empty(self) -> None:
        await self._connection.execute("truncate pgqueuer, pgqueuer_log")

    async def _enqueue_each(self, values: Sequence[dict[str, Any]]) -> None:
        for value in values:
            await self._queries.enqueue(QUEUE, json.dumps(value, separators=(",", ":")).encode())

    async def _enqueue(self, values: Sequence[dict[str, Any]], batch: int) -> None:
        for start in range(0, len(values), batch):
            part = [json.dumps(value, separators=(",", ":")).encode() for value in values[start : start + batch]]
            await self._queries.enqueue([QUEUE] * len(part), part, [0] * len(part))


@contextmanager
def pgqueuer(server: EmbeddedServer) -> Generator[PgQueuer]:
    """Install PgQueuer into a database of its own."""
    try:
        import uvloop
    except ImportError as error:
        raise MissingExtraError("bench") from error
    with (
        empty_database(server, "pgqueuer") as conninfo,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        peer = PgQueuer(runner, conninfo)
        try:
            yield peer
        finally:
            peer.close()


async def _install(conninfo: str) -> tuple[Any, Any]:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]
    from pgqueuer.queries import Queries

    connection = cast("Any", await asyncpg.connect(conninfo))  # pyright: ignore[reportUnknownMemberType]
    queries = Queries.from_asyncpg_connection(connection)
    await queries.install()
    return connection, queries
