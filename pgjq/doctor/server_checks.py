"""Judgements of the server and of this login: pure functions of what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgjq.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.doctor.finding import Thresholds
    from pgjq.storage.doctor_facts import IndexFacts, ServerFacts, Snapshot, TableFacts

FULL_NOTIFICATION_QUEUE: Final = 0.5
ROOMY: Final = 1000  # Bytes of table and indexes per row, beyond which a large table is mostly empty.


def judge_server(facts: ServerFacts, limits: Thresholds, *, pgjq_version: str) -> Iterator[Finding]:
    """Judge versions, schema, clock, connections and roles."""
    yield _versions(facts, pgjq_version)
    yield _schema(facts)
    yield _clock(facts, limits)
    yield _connections(facts, limits)
    yield _roles(facts)


def _versions(facts: ServerFacts, pgjq_version: str) -> Finding:
    message = f"PostgreSQL {facts.version}, pgjq {pgjq_version}"
    if facts.is_supported:
        return Finding("versions", "ok", message)
    return Finding("versions", "error", message, "Upgrade PostgreSQL: pgjq needs version 14 or newer.")


def _schema(facts: ServerFacts) -> Finding:
    found, expected = facts.schema_version, facts.expected_schema
    if found == expected:
        return Finding("schema", "ok", f"version {found}, as this code needs")
    if found == expected + 1:
        message = f"the schema has version {found}, and this code works on it, but it is made for {expected}"
        return Finding("schema", "warning", message, "Upgrade pgjq here before the schema is migrated again.")
    message = f"the schema has version {found}, this code needs {expected}"
    advice = "pgjq migrate" if found < expected else "Upgrade pgjq here."
    return Finding("schema", "error", message, advice)


def _clock(facts: ServerFacts, limits: Thresholds) -> Finding:
    if abs(facts.skew) <= limits.clock_skew:
        return Finding("clock", "ok", "this machine and the database agree about the time")
    way = "ahead of" if facts.skew > 0 else "behind"
    message = f"the database's clock is {abs(facts.skew):,.1f} s {way} this machine's"
    advice = "Deadlines follow the database's clock, so jobs are safe; times that your code computes are not. Run NTP."
    return Finding("clock", "warning", message, advice)


def _connections(facts: ServerFacts, limits: Thresholds) -> Finding:
    message = f"{facts.connections} of {facts.max_connections} connections are in use"
    if facts.connections < limits.connections * facts.max_connections:
        return Finding("connections", "ok", message)
    advice = "Lower max_size of storages or the number of processes, put PgBouncer before producers, or raise "
    return Finding("connections", "warning", message, f"{advice}max_connections. The view pg_stat_activity shows who.")


def _roles(facts: ServerFacts) -> Finding:
    if facts.owns_schema:
        also = ", and pgjq's roles exist for other logins" if facts.roles else ""
        if facts.roles and facts.public_functions:
            message = f"every login may call functions of pgjq: {', '.join(facts.public_functions[:3])}"
            return Finding("roles", "warning", message, "Set the rights anew: pgjq migrate --roles")
        return Finding("roles", "ok", f"login {facts.login} owns the schema{also}")
    if not facts.member_of:
        message = f"login {facts.login} neither owns the schema nor is in one of pgjq's roles"
        monitor = next((role for role in facts.roles if role.endswith("_monitor")), "pgjq_monitor")
        return Finding("roles", "warning", message, f"grant {monitor} to {facts.login}; docs/roles.md has the roles")
    return Finding("roles", "ok", f"login {facts.login} is in {', '.join(facts.member_of)}")


def judge_listening(facts: ServerFacts, limits: Thresholds, *, receives_notifications: bool) -> Iterator[Finding]:
    """Judge notifications, and what is between this process and the server."""
    if facts.notification_queue >= FULL_NOTIFICATION_QUEUE:
        message = f"the server's queue of notifications is {facts.notification_queue:.0%} full"
        advice = (
            "A session that listens has a transaction open for long: end it. At 100 % every commit that notifies fails."
        )
        yield Finding("listen", "error", message, advice)
    elif receives_notifications:
        yield Finding("listen", "ok", "a notification arrived")
    else:
        message = f"no notification arrived within {limits.listen_timeout:g} s"
        advice = "Workers and waiters poll instead, and events are not received. Give them a direct connection."
        yield Finding("listen", "warning", message, advice)
    yield _pooler(facts, receives_notifications=receives_notifications)


def _pooler(facts: ServerFacts, *, receives_notifications: bool) -> Finding:
    if not facts.is_pooled:
        return Finding("pooler", "ok", "a direct connection")
    if receives_notifications:
        return Finding("pooler", "ok", "a pooler that keeps a session for each client")
    advice = (
        "Producers may stay behind it. Give workers, reapers and waiters a direct connection, or pool_mode = session."
    )
    return Finding("pooler", "warning", "a pooler that shares sessions: no notifications, no leader", advice)


def judge_snapshots(snapshots: Sequence[Snapshot], limits: Thresholds) -> Iterator[Finding]:
    """Judge the oldest snapshot: vacuum removes no row that died after it began."""
    oldest = max((s for s in snapshots if s.open_for is not None), key=lambda s: s.open_for or 0.0, default=None)
    if oldest is None or (oldest.open_for or 0.0) <= limits.snapshot_age:
        yield Finding("snapshot", "ok", "no old snapshot keeps dead rows")
        return
    holder = " ".join(part for part in (oldest.kind, oldest.name, oldest.state and f"({oldest.state})") if part)
    by = f" of login {oldest.login}" if oldest.login else ""
    program = f", application {oldest.application}" if oldest.application else ""
    yield Finding(
        "snapshot",
        "warning",
        f"{holder}{by}{program} has held a snapshot for {(oldest.open_for or 0.0) / 60:,.0f} min",
        _end(oldest),
    )


def _end(snapshot: Snapshot) -> str:
    why = "Vacuum removes no dead rows until it ends, and claims get slower."
    if snapshot.kind == "session":
        return f"{why} End it: select pg_terminate_backend({snapshot.name}); set idle_in_transaction_session_timeout."
    if snapshot.kind == "prepared transaction":
        return f"{why} End it: rollback prepared '{snapshot.name}', or commit it."
    return f"{why} Let its consumer catch up, or drop it: select pg_drop_replication_slot('{snapshot.name}')"


def judge_tables(facts: ServerFacts, tables: Sequence[TableFacts], limits: Thresholds) -> Iterator[Finding]:
    """Judge vacuum and bloat of the tables that change with every job."""
    off = [table.name for table in tables if not table.autovacuum]
    dead = [table for table in tables if table.dead_rows > limits.dead_rows]
    if not facts.autovacuum or off:
        where = "on this server" if not facts.autovacuum else f"for {', '.join(off)}"
        advice = "Turn it on: without it claims get slower with every job. alter system set autovacuum = on, or "
        advice += "alter table … reset (autovacuum_enabled)"
        yield Finding("vacuum", "error", f"autovacuum is off {where}", advice)
    elif dead:
        message = f"{dead[0].dead_rows:,} dead rows in {dead[0].name}, vacuumed {dead[0].vacuumed_at or 'never'}"
        advice = "An old snapshot may keep them (see snapshot), or all workers of autovacuum are busy: raise "
        yield Finding(
            "vacuum", "warning", message, f"{advice}autovacuum_max_workers. At once: vacuum pgjq.{dead[0].name}"
        )
    else:
        yield Finding("vacuum", "ok", "autovacuum keeps up")
    bloated = [t for t in tables if t.bytes > limits.bloat and t.bytes > ROOMY * max(1, t.live_rows)]
    for table in bloated:
        message = f"{table.name} takes {table.bytes / 1024**2:,.0f} MiB for {table.live_rows:,} live rows"
        advice = f"PostgreSQL reuses the space. To return it, while no worker runs: vacuum full pgjq.{table.name}"
        yield Finding("bloat", "warning", message, advice)
    if not bloated:
        yield Finding("bloat", "ok", "the tables of live jobs are compact")


def judge_indexes(facts: IndexFacts) -> Iterator[Finding]:
    """Judge indexes: the guarantees depend on unique ones, the speed on all."""
    for names, fault in ((facts.missing, "missing"), (facts.invalid, "invalid")):
        if names:
            advice = "Create it as sql/schema does." if fault == "missing" else f"reindex index pgjq.{names[0]}"
            yield Finding("indexes", "error", f"{fault}: {', '.join(names)}", advice)
    if not facts.missing and not facts.invalid:
        yield Finding("indexes", "ok", "all indexes are there and valid")
