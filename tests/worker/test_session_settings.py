"""What a worker's sessions tell the server, so that the row locks of a host that vanishes are freed soon."""

from __future__ import annotations

import shlex
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import pgjq
from pgjq import AsyncJob, Job, LeasePolicy, PostgresStorage, Queue
from pgjq.embedded import EmbeddedServer
from tests.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_postgresql.executors import NoopExecutor

NAMES = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
IDLE = "idle_in_transaction_session_timeout"
# A deferred trigger runs inside COMMIT, after the job was completed.
NOTE_AT_COMMIT = """
create table effect (id text);
create table seen (value text);
create function note_limit() returns trigger language plpgsql
as $$begin insert into seen values (current_setting('idle_in_transaction_session_timeout')); return null; end$$;
create constraint trigger note after insert on effect deferrable initially deferred
for each row execute function note_limit()
"""


@pytest.fixture
def tcp_database(server: str, template: NoopExecutor, tmp_path: Path) -> Iterator[str]:
    """A migrated database that is reached over TCP: on a unix socket the server shows 0 for all keepalives."""
    if not str(conninfo_to_dict(server)["host"]).startswith("/"):
        with new_database(server, template) as conninfo:
            yield conninfo
        return
    with EmbeddedServer.start(tmp_path / "postgres") as embedded:
        cluster = embedded._cluster
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(free_port()),
            "unix_socket_directories": str(cluster.socket),
            "fsync": "off",
        }
        words = shlex.join(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
        assert cluster._control("restart", "-m", "fast", "-l", cluster.log.name, "-o", words).returncode == 0
        conninfo = make_conninfo(host="127.0.0.1", port=settings["port"], user="postgres", dbname="postgres")
        pgjq.migrate(conninfo)
        yield conninfo


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(storage: PostgresStorage, handler: Callable[..., Any], lease: float | None = 30) -> None:
    policy = LeasePolicy(lease=lease, heartbeat=None if lease is None else lease / 3)
    queue = Queue("q", storage=storage, block_timeout=30, lease_policy=policy)
    queue.execute(handler)
    with queue:
        queue.enqueue_and_wait("job", None, timeout=60)


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_the_server_notices_within_half_a_minute_that_a_workers_host_has_vanished(
    tcp_database: str, style: str
) -> None:
    shown: dict[str, str] = {}

    def show(job: Job) -> None:
        with job.transaction() as connection:
            shown.update({name: connection.execute(f"show {name}").fetchone()[0] for name in NAMES})

    async def show_async(job: AsyncJob) -> None:
        async with job.transaction() as connection:
            for name in NAMES:
                shown[name] = (await (await connection.execute(f"show {name}")).fetchone())[0]

    with closing(PostgresStorage(tcp_database)) as storage:
        run(storage, show if style == "plain" else show_async)
    assert shown == dict(zip(NAMES, ("10", "5", "4", "30000"), strict=True))


@pytest.fixture
def seen(database: str) -> Iterator[Callable[[], list[str]]]:
    """Return what reads the limits that were in force at the COMMITs of effects."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(NOTE_AT_COMMIT)
        yield lambda: [value for (value,) in connection.execute("select value from seen")]
        connection.execute("drop table effect, seen; drop function note_limit")


@pytest.mark.parametrize(("lease", "limit"), [(1, "5s"), (20, "20s"), (3600, "1min")])
@pytest.mark.parametrize("style", ["plain", "coroutine", "factory"])
def test_a_completed_job_waits_for_its_commit_no_longer_than_its_lease(
    database: str,
    postgres: PostgresStorage,
    seen: Callable[[], list[str]],
    style: str,
    *,
    lease: float,
    limit: str,
) -> None:
    """Before its completion the limit is that of the attempt, 900 s, and 5 s: tests/worker/test_idle_limit.py."""
    before: list[Any] = []

    def write(job: Job) -> None:
        factory = (lambda: psycopg.connect(database)) if style == "factory" else None
        with job.transaction(factory) as connection:
            before.append(connection.execute(f"show {IDLE}").fetchone()[0])
            connection.execute("insert into effect values (%s)", (job.id,))

    async def write_async(job: AsyncJob) -> None:
        async with job.transaction() as connection:
            before.append((await (await connection.execute(f"show {IDLE}")).fetchone())[0])
            await connection.execute("insert into effect values (%s)", (job.id,))

    run(postgres, write_async if style == "coroutine" else write, lease)
    assert (before, seen()) == (["905s"], [limit])
