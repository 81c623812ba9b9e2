"""How many rows of jobs a transaction has read, for tests of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def fetched(connection: psycopg.Connection[Any]) -> int:
    """Count the rows that this transaction has read so far, by scans of tables and of indexes."""
    row = connection.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::integer from pg_stat_xact_user_tables"
        " where relname in ('job_default', 'body_default', 'done_default', 'progress_default')"
    ).fetchone()
    assert row is not None
    return row[0]
