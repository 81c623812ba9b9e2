"""Run revisions while workers work: one at a time, with short waits for locks.

Indexes are built beside writers.
* Each revision is a transaction. A second connection holds an advisory lock for the whole migration, in a transaction
  of its own: a lock of a session would outlive its client behind a pooler. It has no snapshot while it waits, so the
  building of an index does not wait for it. Other migrations try again and again instead of waiting inside a statement,
  whose snapshot the building of an index would wait for.
* A statement waits `LOCK_TIMEOUT` for a lock, because all statements of workers queue up behind it. A revision that
  did not get its locks is rolled back, and runs again after a pause. After `PATIENCE` the migration fails, and has
  changed nothing since the last revision that was committed.
* Code on a schema of the next version has nothing to migrate (`pgjq.storage.postgres.schema_version`).
"""

from __future__ import annotations

import random
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pgjq.errors import StorageUnavailableError, ValidationError
from pgjq.storage.postgres.queries import read, render
from pgjq.storage.postgres.schema_version import is_supported

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy.engine import Connection

LOCK_TIMEOUT: Final = 500  # Milliseconds.
PATIENCE: Final = 60.0  # Seconds.
PAUSE: Final = 0.2  # Seconds between two tries to get a lock: workers go on meanwhile.
SEARCH_PATH: Final = "set local search_path = pg_catalog, pg_temp"
_INDEX: Final = re.compile(r"^create (?P<kind>(?:unique )?index) (?P<name>\w+)\s+on pgjq\.(?P<table>\w+)", re.MULTILINE)


@contextmanager
def only_one_migrates(connection: Connection, schema: str) -> Generator[None]:
    """Wait until no other process migrates this schema, and keep others waiting in the block."""
    from sqlalchemy import text

    take = text("select pg_try_advisory_xact_lock(hashtext(:key))")
    with connection.engine.connect() as holder:
        while not holder.execute(take, {"key": f"pgjq.migrate.{schema}"}).scalar_one():
            holder.rollback()
            time.sleep(PAUSE * random.random())  # noqa: S311
        # It also closes the query before it, whose snapshot lasts until then.
        holder.exec_driver_sql("set local idle_in_transaction_session_timeout = 0")
        yield
        holder.rollback()


def limit_lock_waits(connection: Connection) -> None:
    """Give each transaction of a connection a short lock timeout and a safe search path."""
    from sqlalchemy import event

    def begin(connection: Connection) -> None:
        if connection.get_isolation_level() != "AUTOCOMMIT":
            connection.exec_driver_sql(f"set local lock_timeout = {LOCK_TIMEOUT}")
            connection.exec_driver_sql(SEARCH_PATH)

    event.listen(connection, "begin", begin)


def retry_locks(run: Callable[[], None], undo: Callable[[], None], *, repeatable: bool = True) -> None:
    """Run statements; without their locks, undo them and run them again after a pause."""
    from sqlalchemy.exc import OperationalError

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return run()
        except OperationalError as error:
            if not _is_lock_timeout(error):
                raise
            undo()
            if not repeatable or time.monotonic() > deadline:
                message = (
                    "cannot migrate: other transactions hold locks on pgjq's tables for long; end them"
                    " (sql/monitoring/snapshots.sql shows them) and migrate again"
                )
                raise StorageUnavailableError(message) from error
        time.sleep(PAUSE * (1 + random.random()))  # noqa: S311


def _is_lock_timeout(error: BaseException) -> bool:
    from psycopg.errors import LockNotAvailable

    return isinstance(getattr(error, "orig", None), LockNotAvailable)


def is_next_version(connection: Connection, schema: str) -> bool:
    """Return whether a schema that newer code migrated is one that this code works on."""
    from sqlalchemy import text

    statement = read("queries/schema_version.sql", schema).replace(":", "\\:")
    return is_supported(connection.execute(text(statement)).scalar_one())


def build_index(path: str) -> None:
    """Build the index of a file below `sql/` in a revision, while others write to the table.

    The file is one statement, `create index NAME on pgjq.TABLE …`. On a partitioned table each partition's index is
    built concurrently and attached. What stands before it in the revision is committed, so it must be able to run
    twice. A build that broke off is begun again by the next migration.
    """
    from alembic import context, op

    from pgjq.migrate import current_schema, run_sql

    if context.is_offline_mode():
        run_sql(path)  # The partitions are not known here.
        return
    with op.get_context().autocommit_block():
        _Build(op.get_bind(), current_schema(), read(path, "pgjq")).run()


class _Build:
    """The building of one index, outside of transactions."""

    def __init__(self, connection: Connection, schema: str, statement: str) -> None:
        found = _INDEX.search(statement)
        if found is None:
            raise ValidationError("the file must have one statement: create index NAME on pgjq.TABLE …")
        self._connection = connection
        self._schema = schema
        self._name = render(f"pgjq.{found['name']}", schema)
        self._table = render(f"pgjq.{found['table']}", schema)
        # A partitioned table's own index has no rows; one on a plain table is built at once.
        self._on_parent = render(_INDEX.sub(r"create \g<kind> \g<name> on only pgjq.\g<table>", statement), schema)
        self._at_once = render(
            _INDEX.sub(r"create \g<kind> concurrently \g<name> on pgjq.\g<table>", statement), schema
        )

    def run(self) -> None:
        partitioned = self._read("select relkind = 'p' from pg_class where oid = cast(:name as regclass)", self._table)
        is_valid = self._read("select indisvalid from pg_index where indexrelid = to_regclass(:name)", self._name)
        if not partitioned and is_valid is False:
            self._execute(f"drop index concurrently {self._name}")
        if not partitioned and not is_valid:
            self._execute(self._at_once)
        if partitioned and is_valid is None:
            self._execute_briefly(self._on_parent)
        if partitioned:
            self._build_partitions()

    def _build_partitions(self) -> None:
        from sqlalchemy import text

        left = read("queries/index_builds.sql", self._schema).replace("::", "\\:\\:")
        for leftover, build, attach in self._connection.execute(text(left), {"index": self._name}).all():
            if leftover is not None:
                self._execute(leftover)
            if build is not None:
                self._execute(build)
            self._execute_briefly(attach)

    def _read(self, query: str, name: str) -> bool | None:
        from sqlalchemy import text

        return self._connection.execute(text(query), {"name": name}).scalar()

    def _execute(self, statement: str) -> None:
        from sqlalchemy import text

        self._connection.execute(text(statement.replace(":", "\\:")))

    def _execute_briefly(self, statement: str) -> None:
        """Run a statement that needs a strong lock, as a transaction of its own."""
        brief = f"begin; set local lock_timeout = {LOCK_TIMEOUT}; {statement}; commit"
        retry_locks(lambda: self._execute(brief), lambda: self._execute("rollback"))
