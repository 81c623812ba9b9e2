"""Run statements: borrow a connection, repeat after a deadlock, set invalid rows aside.

The base of all operations: a statement goes from an operation through `_fetch` to a session.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from pgjq.errors import (
    StorageError,
    StorageUnavailableError,
)
from pgjq.storage.postgres import literals
from pgjq.storage.postgres.error_translation import GONE, TRANSIENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from pgjq.blocking import Mode
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Rows, Session

R = TypeVar("R")

TRIES = 5


class Statements:
    """The pool and the statements of one mode."""

    def __init__(self, mode: Mode, pool: Pool, queries: Queries) -> None:
        self._mode: Mode = mode
        self._pool = pool
        self._queries = queries

    async def _fetch(self, name: str, params: dict[str, Any] | None = None) -> Rows:
        """Run the statement of an operation."""
        return await self._repeated(lambda session: session.fetch(name, params or {}))

    async def _fetch_or_set_aside(self, name: str, params: dict[str, Any], queues: Sequence[str] | None = None) -> Rows:
        """Run a statement about many jobs; end jobs with invalid values as failed, and repeat it.

        The failed statement had no effect. Where every row is valid, this costs nothing.
        """
        for _ in range(TRIES - 1):
            try:
                return await self._fetch(name, params)
            except StorageError as error:
                if not isinstance(error.__cause__, psycopg.DataError) or not await self._set_aside(queues):
                    raise
        return await self._fetch(name, params)

    async def _set_aside(self, queues: Sequence[str] | None) -> int:
        """End jobs of these queues, or of all, as failed if invalid; return how many."""
        ((jobs,),) = await self._fetch(
            "fail_invalid_jobs", {"queues": None if queues is None else literals.texts(queues)}
        )
        if jobs:
            logging.getLogger("pgjq").error(
                "jobs set aside as failed: their rows hold values out of bounds; find_jobs shows each one's error",
                extra={"jobs": jobs, "queues": queues},
            )
        return jobs

    async def _repeated(self, work: Callable[[Session], Awaitable[R]]) -> R:
        """Run `work` with a connection; repeat it after a deadlock, which had no effect."""
        for _ in range(TRIES - 1):
            try:
                return await self._once(work)
            except StorageError as error:
                if not isinstance(error.__cause__, TRANSIENT):
                    raise
        return await self._once(work)

    async def _once(self, work: Callable[[Session], Awaitable[R]]) -> R:
        async with self._session() as session:
            return await work(session)

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[Session]:
        """Borrow a connection; replace the whole pool if the server was demoted or is shutting down."""
        try:
            async with self._pool.session() as session:
                yield session
        except StorageUnavailableError as error:
            if isinstance(error.__cause__, GONE):
                self._pool.drop()
            raise

    async def _run_blocking(self, call: Callable[[], R]) -> R:
        """Make a blocking call: on this thread in sync mode, on another one in async mode."""
        return call() if self._mode == "sync" else await asyncio.to_thread(call)
