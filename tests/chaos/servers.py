"""What the fleet runs against: a PostgreSQL cluster, a Redis server with an append-only file, or a directory.

Each gives every process an address of its own. On PostgreSQL and Redis that is a proxy, so that the connections of one
process can be broken; `admin_address` is never broken, and follows a failover.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, Protocol, Self

import psycopg
from psycopg.conninfo import make_conninfo

import pgjq
from tests import pgbouncer
from tests.chaos.cluster import Cluster
from tests.chaos.network import FaultyProxy, FaultyRedisProxy
from tests.chaos.spaces import ELECTION, MAIN, own_space
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from pathlib import Path

StorageName = Literal["postgres", "redis", "file"]
REAPERS = ("reaper-1", "reaper-2")
POOLED = "worker-pooled"
MANY = "worker-many"  # A worker with a supervisor and several processes.
PRODUCER = "chaos_producer"  # A login with the rights of a producer.
OUTSIDER = "chaos_outsider"  # A login without any right but CONNECT.
TABLES = """
    create table effect (id text not null, lease integer not null);
    create table keyed (
        position bigserial primary key, key text not null, number integer not null, lease integer not null,
        started timestamptz not null default clock_timestamp(), ended timestamptz
    );
"""


class Servers(Protocol):
    """What is common to all."""

    name: StorageName
    admin_address: str
    extra: tuple[str, ...]

    def address(self, process: str) -> str:
        """Return where a process finds its storage."""
        ...

    def settle(self) -> str:
        """Wait until the servers are as they were before a fault; return what is worth a note."""
        ...


class Network:
    """A proxy for each process that asked for an address."""

    make_proxy = FaultyProxy

    def __init__(self) -> None:
        self.proxies: dict[str, FaultyProxy] = {}
        self._stack = ExitStack()

    def proxy(self, process: str, upstream: str) -> FaultyProxy:
        """Return the proxy of a process; it is made at the first call."""
        if process not in self.proxies:
            self.proxies[process] = self._stack.enter_context(self.make_proxy(upstream))
        return self.proxies[process]

    def close(self) -> None:
        self._stack.close()


class PostgresServers(Network):
    """A primary with a synchronous standby, and PgBouncer where it is installed."""

    name: StorageName = "postgres"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.cluster = self._stack.enter_context(Cluster(directory))
        self._prepare()
        self._admin = self._stack.enter_context(FaultyProxy(self.cluster.primary.conninfo))
        self.admin_address = self._admin.conninfo
        self.bouncer: pgbouncer.PgBouncer | None = None
        self.extra: tuple[str, ...] = (MANY,)
        if pgbouncer.is_installed():
            self._relay = self._stack.enter_context(FaultyProxy(self.cluster.primary.conninfo))
            self.bouncer = self._stack.enter_context(pgbouncer.PgBouncer(self._relay.conninfo, directory))
            self.extra = (MANY, POOLED)

    def address(self, process: str) -> str:
        """Return the address of a process's proxy."""
        if process == POOLED and self.bouncer is not None:
            return self.proxy(process, self.bouncer.conninfo).conninfo
        return self.proxy(process, self.cluster.primary.conninfo).conninfo

    def redirect(self) -> None:
        """Point every proxy at the primary of now; connections that are open stay where they are."""
        for name, proxy in self.proxies.items():
            if name != POOLED:
                proxy.redirect(self.cluster.primary.conninfo)
        self._admin.redirect(self.cluster.primary.conninfo)
        self._admin.cut()
        if self.bouncer is not None:
            self._relay.redirect(self.cluster.primary.conninfo)

    def reconnect_pooler(self) -> None:
        """Cut PgBouncer's own sessions: it would keep those that began with settings which are gone, as for others."""
        if self.bouncer is not None:
            self._relay.cut()

    def settle(self) -> str:
        self.cluster.wait_for_standby()
        ((sessions,),) = self.cluster.primary.execute("select count(*) from pg_stat_activity where datname is not null")
        return f"{sessions} sessions"

    def login(self, user: str) -> psycopg.Connection[tuple[object, ...]]:
        """Connect past every proxy as one of the logins that faults use."""
        return psycopg.connect(make_conninfo(self.cluster.primary.admin_conninfo, user=user), autocommit=True)

    def _prepare(self) -> None:
        primary = self.cluster.primary
        pgjq.migrate(primary.conninfo, MAIN, roles=True)
        for space in (ELECTION, *map(own_space, REAPERS)):
            pgjq.migrate(primary.conninfo, space)
        primary.execute(TABLES)
        primary.execute(f"create role {PRODUCER} login in role pgjq_producer")
        primary.execute(f"create role {OUTSIDER} login")
        with pgjq.Client(pgjq.PostgresStorage(primary.conninfo)) as client:
            client.create_queue("keyed", policy="key_strict_fifo")


class RedisServers(Network):
    """One server that has every write in its file before it answers."""

    name: StorageName = "redis"
    extra: tuple[str, ...] = (MANY,)
    make_proxy = FaultyRedisProxy

    def __init__(self, directory: Path) -> None:
        super().__init__()
        # The server is killed and the machine is not: the file needs no fsync.
        self.server = self._stack.enter_context(RedisServer(directory, "--appendonly", "yes", "--appendfsync", "no"))
        self.admin_address = self.server.url

    def address(self, process: str) -> str:
        """Return the address of a process's proxy."""
        return f"redis://127.0.0.1:{self.proxy(process, f'host=127.0.0.1 port={self.server.port}').port}"

    def settle(self) -> str:
        """Do nothing: a Redis that answers is as it was."""
        return ""


class FileServers:
    """No server, a directory."""

    name: StorageName = "file"
    extra: tuple[str, ...] = (MANY,)

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "jobs"
        self.directory.mkdir(mode=0o700)
        self.admin_address = f"file://{self.directory}"
        with pgjq.Client(pgjq.FileStorage(self.directory / MAIN)) as client:
            client.create_queue("keyed", policy="key_strict_fifo")

    def address(self, _process: str) -> str:
        """Return the directory: a process needs no connection."""
        return self.admin_address

    def settle(self) -> str:
        """Do nothing: a directory needs no time."""
        return ""

    def close(self) -> None:
        """Do nothing: the directory goes with its parent."""

    def __enter__(self) -> Self:
        return self


MAKERS = {"postgres": PostgresServers, "redis": RedisServers, "file": FileServers}
