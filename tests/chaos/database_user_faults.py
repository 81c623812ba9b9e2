"""Faults that other users of the same database cause: locks, settings, clocks, notifications and poisoned jobs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg

from tests.chaos.faults import System, kind
from tests.chaos.postgres_faults import OURS, servers_of, terminate
from tests.chaos.servers import OUTSIDER, PRODUCER

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

LOCKS = ("pgjq.queue", "pgjq.wake", "pgjq.uncommitted", "pgjq.events", "pgjq.write", "pgjq.leader")
NAMES = ("work", "keyed", "echo", "reaper", "probe-worker-1", "probe-worker-2")
GARBAGE = ("", "not JSON", "7", "[]", '{"a": 1}', "[[1]]", '[{"at": 1e300}]', "\u20ac" * 100)
FUNCTIONS = ("settle", "claim", "reap", "enqueue_job", "job_state", "seconds_until_work", "find_settled")
SETTINGS = {
    "statement_timeout": "50ms",
    "lock_timeout": "10ms",
    "idle_session_timeout": "500ms",
    "idle_in_transaction_session_timeout": "50ms",
    "transaction_timeout": "50ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
}


@kind("server", "postgres", hold=(0.5, 2.0))
def take_every_connection(system: System, _chance: random.Random) -> Generator[None]:
    """Open connections until the server has no more, and end pgjq's own meanwhile."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(servers_of(system).login("postgres"))
        for _ in range(3):  # What pgjq gives up, others take.
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    stack.enter_context(servers_of(system).login("postgres"))
            admin.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}".encode())  # noqa: S608
        yield


@kind("server", "postgres", hold=(0.5, 3.0))
def lock_job_rows(system: System, _chance: random.Random) -> Generator[None]:
    """Lock every row of the table of jobs."""
    with servers_of(system).login("postgres") as connection, connection.transaction():
        connection.execute("select from pgjq.job for update skip locked")
        yield


@kind("server", "postgres", hold=(0.2, 1.0))
def lock_job_table(system: System, _chance: random.Random) -> Generator[None]:
    """Lock the table of jobs, as an ALTER TABLE does."""
    with servers_of(system).login("postgres") as connection, connection.transaction():
        connection.execute("lock table pgjq.job in access exclusive mode")
        yield


@kind("server", "postgres", hold=(0.5, 3.0))
def hold_advisory_locks(system: System, _chance: random.Random) -> Generator[None]:
    """Have a login without rights hold the advisory locks that pgjq uses."""
    with servers_of(system).login(OUTSIDER) as connection:
        for lock in LOCKS:
            for name in NAMES:
                connection.execute("select pg_try_advisory_lock(hashtext(%s), hashtext(%s))", [lock, name])
        yield


@kind("server", "postgres", hold=(0.5, 3.0))
def take_a_function_away(system: System, chance: random.Random) -> Generator[None]:
    """Have a function of pgjq missing, as in the middle of a deployment."""
    name = chance.choice(FUNCTIONS)
    primary = servers_of(system).cluster.primary
    primary.execute(f"alter function pgjq.{name} rename to {name}_away")
    yield
    primary.execute(f"alter function pgjq.{name}_away rename to {name}")


@kind("server", "postgres", hold=(1.0, 3.0))
def pin_a_snapshot(system: System, _chance: random.Random) -> Generator[None]:
    """Keep a transaction open that sees an old state, so that dead rows stay."""
    with servers_of(system).login("postgres") as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from pgjq.job")
        yield


@kind("server", "postgres", hold=(0.5, 2.0))
def set_role_limits(system: System, chance: random.Random) -> Generator[None]:
    """Set a time-out or an isolation level for the role, and end its sessions so that new ones have it."""
    name = chance.choice(sorted(SETTINGS))
    primary = servers_of(system).cluster.primary
    primary.execute(f"alter role postgres in database postgres set {name} = '{SETTINGS[name]}'")
    terminate(system, OURS)
    yield
    primary.execute(f"alter role postgres in database postgres reset {name}")
    servers_of(system).reconnect_pooler()


@kind("server", "postgres", hold=(0.5, 2.0), weight=0.5)
def make_read_only(system: System, _chance: random.Random) -> Generator[None]:
    """Make transactions read-only by default, and end sessions so that new ones have it."""
    primary = servers_of(system).cluster.primary
    primary.execute("alter role postgres in database postgres set default_transaction_read_only = on")
    terminate(system, OURS)
    yield
    primary.execute("alter role postgres in database postgres reset default_transaction_read_only")
    servers_of(system).reconnect_pooler()


@kind("server", "postgres", hold=(0.5, 2.0))
def move_the_clock(system: System, chance: random.Random) -> Generator[None]:
    """Move pgjq's clock ahead or back by some seconds, and let it run on."""
    create = "create or replace function pgjq.now() returns timestamptz language sql stable parallel safe return {}"
    primary = servers_of(system).cluster.primary
    seconds = chance.choice([-8, -3, 3, 8])
    primary.execute(create.format(f"statement_timestamp() + make_interval(secs => {seconds})"))
    yield
    primary.execute(create.format("statement_timestamp()"))


@kind("server", "postgres", weight=2)
def send_malformed_notifications(system: System, chance: random.Random) -> Generator[None]:
    """Have a login without rights send notifications that cannot be read."""
    with servers_of(system).login(OUTSIDER) as connection:
        for channel in ("pgjq.wake", "pgjq.results", "pgjq.events"):
            for text in GARBAGE:
                connection.execute("select pg_notify(%s, %s)", [channel, text])
        connection.execute("select pg_notify('pgjq.wake', %s)", ["x" * chance.randint(1, 7000)])
    yield


@kind("server", "postgres", weight=2)
def enqueue_poison(system: System, chance: random.Random) -> Generator[None]:
    """Have a producer enqueue jobs with values at and beyond the limits; pgjq refuses them or sets them aside."""
    values = ["1e-400", "1e300", "-1", "0", "1e-320", '"soon"', "{}", "null", "9" * 400]
    names = ["heartbeat_seconds", "retry_delay", "retention_seconds", "expire_in_seconds", "delete_after_seconds"]
    add = "select pgjq.add_jobs(%s, array[gen_random_uuid()::text], array[%s::bytea], %s)"
    with servers_of(system).login(PRODUCER) as connection:
        for queue in ("work", "echo"):
            for payload in (b"1", b"\xff"):
                options = f'{{"options": {{"{chance.choice(names)}": {chance.choice(values)}}}}}'
                with contextlib.suppress(psycopg.Error):
                    connection.execute(add, [queue, payload, options])
                with contextlib.suppress(psycopg.Error):
                    connection.execute(add, [queue, payload, "{}"])
    yield
