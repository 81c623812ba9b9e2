"""Run statements: borrow a connection, repeat after a deadlock, set invalid rows aside.

The base of all operations: a statement goes from an operation through `_fetch` to a session.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from pgjq.deadline import current_statement_limit, run_on_thread
from pgjq.errors import StorageError
from pgjq.storage.postgres import array_literals
from pgjq.storage.postgres.error_translation import GONE, TRANSIENT
from pgjq.storage.postgres.session import limited

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

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

    @contextmanager
    def on_pool(self, pool: Pool) -> Generator[None]:
        """Borrow connections from another pool until the block ends."""
        own, self._pool = self._pool, pool
        try:
            yield
        finally:
            self._pool = own

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
                if not isinstance(error.__cause__, psycopg.DataError) or not await self._fail_invalid_jobs(queues):
                    raise
        return await self._fetch(name, params)

    async def _fail_invalid_jobs(self, queues: Sequence[str] | None) -> int:
        """End jobs of these queues, or of all, as failed if invalid; return how many."""
        ((jobs,),) = await self._fetch(
            "fail_invalid_jobs", {"queues": None if queues is None else array_literals.texts(queues)}
        )
        if jobs:
            logging.getLogger("pgjq").error(
                "jobs failed because their rows hold values out of bounds; find_jobs shows the error of each",
                extra={"jobs": jobs, "queues": queues},
            )
        return jobs

    async def _repeated(self, work: Callable[[Session], Awaitable[R]]) -> R:
        """Run `work` with a connection; repeat it after a deadlock, which had no effect.

        Replaces the whole pool if the server was demoted or is shutting down.
        """
        tries = TRIES
        while True:
            tries -= 1
            try:
                async with self._pool.session() as session:
                    if (limit := current_statement_limit()) is None:
                        return await work(session)
                    async with limited(session, limit):
                        return await work(session)
            except StorageError as error:
                if isinstance(error.__cause__, GONE):
                    self._pool.drop()
                if not tries or not isinstance(error.__cause__, TRANSIENT):
                    raise

    async def _run_blocking(self, call: Callable[[], R]) -> R:
        """Make a blocking call: on this thread in sync mode, on another one in async mode."""
        return call() if self._mode == "sync" else await run_on_thread(call)
