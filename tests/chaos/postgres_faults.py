"""Faults of PostgreSQL and PgBouncer themselves: ended sessions, restarts, a frozen server, failover, lost answers."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from tests.chaos.faults import System, kind
from tests.chaos.servers import POOLED, PostgresServers
from tests.worker.proxy import Trap

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

OURS = "application_name in ('pgjq', 'pgjq background') and pid <> pg_backend_pid()"
LISTENERS = f"{OURS} and query ilike '%%listen%%'"
LEADERS = (
    "pid in (select pid from pg_locks where locktype = 'advisory' and objsubid = 2 and mode = 'ExclusiveLock'"
    " and classid = (hashtext('pgjq.leader')::bigint & 4294967295)::oid)"
)


def servers_of(system: System) -> PostgresServers:
    """Return the servers, which are those of PostgreSQL here."""
    assert isinstance(system.servers, PostgresServers)
    return system.servers


def terminate(system: System, where: str, limit: int = 1000) -> None:
    """End sessions of pgjq, as an administrator does."""
    servers_of(system).cluster.primary.execute(
        f"select pg_terminate_backend(pid) from (select pid from pg_stat_activity where {where}"  # noqa: S608
        f" order by md5(pid::text) limit {limit}) as chosen"
    )


@kind("server", "postgres", weight=2)
def terminate_some_sessions(system: System, chance: random.Random) -> Generator[None]:
    """End some sessions of pgjq with pg_terminate_backend."""
    terminate(system, OURS, chance.randint(1, 10))
    yield


@kind("server", "postgres")
def terminate_every_session(system: System, _chance: random.Random) -> Generator[None]:
    """End every session of pgjq with pg_terminate_backend."""
    terminate(system, OURS)
    yield


@kind("server", "postgres")
def terminate_listeners(system: System, _chance: random.Random) -> Generator[None]:
    """End the sessions that listen for notifications."""
    terminate(system, LISTENERS)
    yield


@kind("server", "postgres")
def terminate_leaders(system: System, _chance: random.Random) -> Generator[None]:
    """End the sessions that prove leadership."""
    terminate(system, LEADERS)
    yield


@kind("server", "postgres", hold=(0.0, 0.1))
def cancel_statements(system: System, _chance: random.Random) -> Generator[None]:
    """Cancel the statement of every session of pgjq, several times."""
    for _ in range(5):
        servers_of(system).cluster.primary.execute(
            f"select pg_cancel_backend(pid) from pg_stat_activity where {OURS}"  # noqa: S608
        )
    yield


@kind("server", "postgres")
def restart_server(system: System, _chance: random.Random) -> Generator[None]:
    """Restart PostgreSQL at once, as after a crash."""
    servers_of(system).cluster.restart()
    yield


@kind("server", "postgres", hold=(0.5, 3.0))
def stop_server(system: System, chance: random.Random) -> Generator[None]:
    """Stop PostgreSQL for some seconds."""
    primary = servers_of(system).cluster.primary
    primary.stop("immediate" if chance.random() < 0.5 else "fast")
    yield
    primary.start()


@kind("server", "postgres", hold=(0.5, 4.0))
def freeze_server(system: System, _chance: random.Random) -> Generator[None]:
    """Stop the postmaster and every backend with SIGSTOP for some seconds."""
    with servers_of(system).cluster.primary.frozen():
        yield


@kind("server", "postgres", hold=(11.0, 13.0), weight=0.15)
def freeze_server_for_long(system: System, _chance: random.Random) -> Generator[None]:
    """Stop the postmaster and every backend with SIGSTOP for longer than every time-out."""
    with servers_of(system).cluster.primary.frozen():
        yield


@kind("server", "postgres", hold=(0.5, 4.0))
def freeze_some_backends(system: System, chance: random.Random) -> Generator[None]:
    """Stop the server's processes of some sessions with SIGSTOP, whatever locks they hold."""
    primary = servers_of(system).cluster.primary
    found = primary.execute(f"select pid from pg_stat_activity where {OURS} order by md5(pid::text) limit 5")  # noqa: S608
    backends = [int(str(pid)) for (pid,) in found][: chance.randint(1, 5)]
    _signal_all(backends, signal.SIGSTOP)
    yield
    _signal_all(backends, signal.SIGCONT)


def _signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


@kind("server", "postgres", hold=(0.5, 3.0))
def stop_standby(system: System, _chance: random.Random) -> Generator[None]:
    """Stop the synchronous standby: commits hang until it is back."""
    standby = servers_of(system).cluster.standby
    standby.stop("immediate")
    yield
    standby.start()


@kind("server", "postgres", hold=(0.5, 2.0), weight=0.3)
def fail_over(system: System, chance: random.Random) -> Generator[None]:
    """Freeze or kill the primary, promote the standby, send new connections there, and make a new standby."""
    servers = servers_of(system)
    servers.cluster.wait_for_standby()
    if chance.random() < 0.5:
        servers.cluster.primary.freeze()
    else:
        servers.cluster.primary.kill()
    servers.cluster.promote()
    servers.redirect()
    yield
    servers.cluster.replace_standby()


@kind("server", "postgres", weight=0.5)
def fill_the_disk(system: System, _chance: random.Random) -> Generator[None]:
    """Have every backend fail to write beyond the first 64 kB of a file, as on a full disk."""
    primary = servers_of(system).cluster.primary
    primary.limit_files("65536")
    yield
    primary.limit_files("unlimited")
    _wait_for(primary.conninfo)


def _wait_for(conninfo: str) -> None:
    """Wait until a server accepts connections again."""
    while True:
        try:
            psycopg.connect(conninfo, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return


@kind("process", "postgres", hold=(0.5, 1.5), weight=3)
def lose_an_answer(system: System, chance: random.Random) -> Generator[None]:
    """Lose a statement, or the answer to it: of a COMMIT, a claim, a settlement, an enqueue or a heartbeat."""
    words = chance.choice([b"COMMIT", b"pgjq.claim", b"pgjq.settle", b"pgjq.enqueue", b"heartbeat", b"pgjq.complete"])
    half = chance.choice(["unsent", "unanswered", "unanswered"])
    name = chance.choice([name for name in system.proxies if name != POOLED and not name.startswith("reaper")])
    with system.proxies[name].trapped(Trap(words, half, hold=chance.random() < 0.25)):
        yield


@kind("process", "postgres", hold=(0.1, 1.0))
def kill_pgbouncer(system: System, _chance: random.Random) -> Generator[None]:
    """Kill PgBouncer, where it is installed, and start it again."""
    bouncer = servers_of(system).bouncer
    if bouncer is not None:
        bouncer.kill()
    yield
    if bouncer is not None:
        bouncer.start()
