"""What `pgjq doctor` reads of PostgreSQL. Every statement has a time limit."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from pgjq.deadline import run_on_thread
from pgjq.storage.doctor_facts import IndexFacts, PutBackTask, ServerFacts, Snapshot, TableFacts, WorkerSilence
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.queries import resources
from pgjq.storage.postgres.schema_version import SCHEMA_VERSION
from pgjq.storage.postgres.session import fetch_limited

if TYPE_CHECKING:
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.server import Server
    from pgjq.storage.postgres.session import Rows

TIMEOUT: Final = 5.0  # Seconds that a statement may take.
LIMIT: Final = 20
OLDEST_SERVER: Final = 140000  # PostgreSQL 14, the oldest that pgjq is tested with.
TOPIC: Final = "doctor"
_INDEX: Final = re.compile(r"^create (?:unique )?index (\w+)", re.MULTILINE)


class PostgresExamination:
    """See `Examination`."""

    def __init__(self, pool: Pool, server: Server) -> None:
        self._pool = pool
        self._server = server

    async def server(self) -> ServerFacts:
        """See `Examination`."""
        await self._fetch("doctor_server")  # The next one has a connection that is open, and measures the clock alone.
        before = datetime.now(UTC)
        (
            (number, version, schema, now, autovacuum, used, most, queue, login, owns, member_of, roles, public),
        ) = await self._fetch("doctor_server")
        after = datetime.now(UTC)
        return ServerFacts(
            version=version,
            is_supported=number >= OLDEST_SERVER,
            schema_version=schema,
            expected_schema=SCHEMA_VERSION,
            skew=_skew(before, now, after),
            is_pooled=self._server.is_pooled,
            autovacuum=autovacuum,
            connections=used,
            max_connections=most,
            notification_queue=queue,
            login=login,
            owns_schema=owns,
            member_of=tuple(member_of),
            roles=tuple(roles),
            public_functions=tuple(public),
        )

    async def receives_notifications(self, timeout: float) -> bool:
        """See `Examination`. One connection listens, and another one notifies it."""
        token = token_hex(8)
        channel = self._server.queries.channel(f"{TOPIC}.{token}")
        connection = await run_on_thread(lambda: self._listen(channel))
        try:
            await self._fetch("doctor_notify", channel=channel, payload=token)
            return await run_on_thread(lambda: _wait_for(connection, token, timeout))
        finally:
            connection.close()

    async def snapshots(self) -> list[Snapshot]:
        """See `Examination`."""
        return [Snapshot(*row) for row in await self._fetch("doctor_snapshots", limit=LIMIT)]

    async def tables(self) -> list[TableFacts]:
        """See `Examination`."""
        return [TableFacts(*row) for row in await self._fetch("doctor_tables")]

    async def indexes(self) -> IndexFacts:
        """See `Examination`."""
        found = dict(await self._fetch("doctor_indexes"))
        invalid = sorted(name for name, is_valid in found.items() if not is_valid)
        return IndexFacts(tuple(name for name in _declared_indexes() if name not in found), tuple(invalid))

    async def silences(self) -> list[WorkerSilence]:
        """See `Examination`."""
        return [WorkerSilence(*row) for row in await self._fetch("doctor_workers", limit=LIMIT)]

    async def put_back(self) -> list[PutBackTask]:
        """See `Examination`."""
        return [PutBackTask(*row) for row in await self._fetch("doctor_put_back", limit=LIMIT)]

    def _listen(self, channel: str) -> psycopg.Connection[Any]:
        with translated():
            connection = self._server.connect(application_name="pgjq doctor")
            connection.execute("select set_config('statement_timeout', %s, false)", [f"{TIMEOUT}s"])
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            return connection

    async def _fetch(self, name: str, /, **params: Any) -> Rows:
        async with self._pool.session() as session:
            return await fetch_limited(session, name, params, TIMEOUT)


def _wait_for(connection: psycopg.Connection[Any], token: str, timeout: float) -> bool:
    with translated():
        return any(notice.payload == token for notice in connection.notifies(timeout=timeout, stop_after=1))


def _skew(before: datetime, now: datetime, after: datetime) -> float:
    """Return how far a clock is off that was read between two times; 0 if it may be right."""
    if before <= now <= after:
        return 0.0
    return (now - (after if now > after else before)).total_seconds()


@functools.cache
def _declared_indexes() -> tuple[str, ...]:
    """Return the names of the indexes that the schema's files create."""
    files = sorted((resources("sql") / "schema").glob("*.sql"))
    return tuple(name for path in files for name in _INDEX.findall(path.read_text(encoding="utf-8")))
