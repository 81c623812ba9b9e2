"""A stream of endings across a failover: it continues after what the standby has, and refuses what was lost."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pgjq
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import run_in
from pgjq.migrate import migrate
from tests.spark.finished_jobs import ask, do, finish
from tests.spark.test_stream import read, reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = {"fsync": "off", "wal_retrieve_retry_interval": "100ms"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A primary and a standby that streams from it, as connection strings."""
    source, copy = (tmp_path / name / "data" for name in ("one", "two"))
    with EmbeddedServer.start(source.parent, settings=QUICK) as primary:
        migrate(primary.conninfo)
        copy.mkdir(parents=True, mode=0o700)
        os.chown(copy, source.stat().st_uid, source.stat().st_gid)
        words = ("--dbname", primary.conninfo, "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
        made = run_in(source, primary.binaries / "pg_basebackup", "--pgdata", str(copy), *words)
        assert made.returncode == 0, made.stderr
        (copy / ".s.PGSQL.5432.lock").unlink()  # The socket of an embedded server is in its data directory.
        with EmbeddedServer.start(copy.parent, settings=QUICK) as standby:
            yield primary.conninfo, standby.conninfo


def complete(url: str, *ids: str) -> None:
    with closing(pgjq.PostgresStorage(url)) as storage:
        finish(storage, "mail", ids)


def wait_until(url: str, condition: str, *params: object) -> None:
    while not ask(url, condition, *params)[0][0]:
        time.sleep(0.02)


def test_a_stream_continues_on_a_promoted_standby_and_refuses_what_was_lost(servers: tuple[str, str]) -> None:
    primary, standby = servers
    old = reader(primary)
    start = old.initialOffset()
    complete(primary, "kept")
    kept = old.latestOffset(start, ReadAllAvailable())
    ((lsn,),) = ask(primary, "select pg_current_wal_lsn()::text")
    wait_until(standby, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn)
    do(standby, "alter system set primary_conninfo = ''")
    do(standby, "select pg_reload_conf()")
    wait_until(standby, "select not exists(select from pg_stat_wal_receiver)")
    for number in range(20):
        complete(primary, f"lost-{number}")
    lost = old.latestOffset(kept, ReadAllAvailable())
    assert len(read(old, start, lost)) == 21
    do(standby, "select pg_promote()")

    new = reader(standby)
    with pytest.raises(pgjq.StorageError, match=r"the server's newest is .* new checkpoint, .* option finishedAfter"):
        new.latestOffset(lost, ReadAllAvailable())
    for number in range(30):  # By then the server counts beyond the lost transactions.
        complete(standby, f"new-{number}")
    with pytest.raises(pgjq.StorageError, match="of timeline 1, and the server's is 2"):
        new.latestOffset(lost, ReadAllAvailable())
    until = new.latestOffset(kept, ReadAllAvailable())
    assert sorted(read(new, kept, until)) == sorted(f"new-{number}" for number in range(30))
    assert read(new, start, kept) == ["kept"]  # A batch that is made again.
