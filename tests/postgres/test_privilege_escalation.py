"""Attempts of a login of a role to do more than the role may."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import pgjq
from tests.postgres.conftest import ROLES, TABLES, ByRole, execute, new_login


def test_every_function_has_its_search_path_or_was_resolved_when_it_was_made(database: str) -> None:
    rows = execute(
        database,
        "select proname, proconfig, prosqlbody is not null from pg_proc where pronamespace = 'pgjq'::regnamespace",
    )
    assert len(rows) > 40
    assert [
        n for n, config, bound in rows if not bound and "search_path=pg_catalog, pg_temp" not in (config or [])
    ] == []


# What an attacker shadows: every operator, and every function that one of ours uses, for the usual types.
SHADOWS = """
do $$
declare
    usual constant regtype[] := '{boolean,smallint,integer,bigint,text,real,double precision,timestamptz,interval,jsonb,
        numeric,bytea,integer[],bigint[],smallint[],text[],jsonb[],regclass,tid,oid,name,json}';
    words constant text[] := array(
        select distinct m[1] from pg_proc as p, regexp_matches(pg_get_functiondef(p.oid), '\\w+', 'g') as m
        where p.pronamespace = 'pgjq'::regnamespace
    );
    reached constant text := 'language plpgsql as ''begin raise exception $m$reached %%$m$, current_user; end''';
    o record;
begin
    for o in
        select p.proname, oidvectortypes(p.proargtypes) as args, p.prorettype::regtype as ret
        from pg_proc as p
        where
            p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.proname = any(words)
            and p.prorettype = any(usual || 'void'::regtype) and p.proargtypes::oid[] <@ usual::oid[]
            and not p.proretset
    loop
        execute format('create function evil.%I(%s) returns %s ' || reached, o.proname, o.args, o.ret);
    end loop;
    for o in
        select p.oid, p.oprname, p.oprleft::regtype as l, p.oprright::regtype as r, p.oprresult::regtype as ret
        from pg_operator as p
        where
            p.oprnamespace = 'pg_catalog'::regnamespace and p.oprkind = 'b' and p.oprresult = any(usual)
            and p.oprleft = any(usual) and p.oprright = any(usual)
    loop
        execute format('create function evil.o%s(%s, %s) returns %s ' || reached, o.oid, o.l, o.r, o.ret);
        execute format(
            'create operator evil.%s (function = evil.o%s, leftarg = %s, rightarg = %s)', o.oprname, o.oid, o.l, o.r
        );
    end loop;
end
$$;
"""
# An exact match in pg_catalog would win only if that came first; the attacker puts it last, and temporary tables first.
PATH = "set search_path = evil, pg_temp, pg_catalog"
CALLS = {
    "enqueue": "'mail', '1', id => 'one', delay => 0, singleton_seconds => 60, dead_letter => 'dead'",
    "enqueue_job": "'mail', 'two', '1', '{\"priority\": 1}'",
    "enqueue_jobs": "'mail', '{three,one,three}', '{1,2,3}', '{}', null, null",
    "reserve_numbers": "'mail', 3",
    "get_jobs": "'mail', '{one,two}'",
    "get_attempts": "'mail', 'one'",
    "job_state": "'mail', '{one,two}', '{1,2,3,4,5,6}'",
    "mark_awaited": "'mail', 'one'",
    "claim": "'{mail,strict}', 1, 3, 0.001, 0.001, 0, false",
    "find_claimed": "1",
    "find_settled": "'{8}', '{2}', '{1}', '{e}'",
    "save_checkpoint": "8, 2, 1, '1'",
    "settle": "'{8}', '{2}', '{1}', '{4}', null, '{e}', null",
    "reap": "10, 0",
    "fail_invalid_jobs": "null",
    "prune_ended": "10",
    "prune_waiting": "10",
    "prune_workers": "",
    "record_queue_stats": "true",
    "unblock_key_of_job": "8, 2",
    "cancel_jobs": "'mail', '{one}'",
    "retry_job": "'mail', 'one'",
    "retry_jobs": "'mail', '{one}'",
    "release_running": "'mail', '{one}'",
    "reschedule_job": "'mail', 'one', null, 1::smallint",
    "delete_jobs": "'mail', '{one}'",
    "redrive": "'dead', 10, null",
    "create_queue": "'own', 3, true, 5, '{\"retry_limit\": 1}'",
    "update_queue": "'own', '{\"retry_limit\": 2}'",
    "delete_queue": "'own'",
    "describe_jobs": "'{8}', '{1}'",
    "record_minutes": "",
    "record_totals": "",
    "totals": "",
    "scale": "'mail', 10",
    "begin_action": "'ann', 'retry', 'q', '{one}'",
    "end_action": "1, 1",
    "create_schedule": "'tick', 'mail', '1', every => 60",
    "due_schedules": "10",
    "tick": '\'[{"name": "tick", "revision": 0, "ticks": [{"tick": "2026-01-01T00:00:00Z"}], "settings": {}}]\'',
    "pause_schedule": "'tick'",
    "resume_schedule": "'tick'",
    "delete_schedule": "'tick'",
    "create_stage": f"'{'c' * 32}'",
    "commit_write": "'mail', 'one', 0, '{}', 0",
    "drop_stages": f"'{{{'c' * 32}}}'",
    "remove_orphan_bodies": "'mail'",
    "drop_old_stages": "",
    "seconds_until_work": "'{q}'",
}


def commit_rows(connection: psycopg.Connection[Any], values: str, count: int) -> None:
    """Fill a stage and make jobs of it, without a writer that would check the rows."""
    write = uuid4().hex
    found = connection.execute("select pgjq.create_stage(%s)", [write]).fetchone()
    assert found is not None
    connection.execute(f"insert into pgjq.{found[0]} (id, payload, rank) values {values}".encode())  # noqa: S608
    connection.execute("select pgjq.commit_write('mail', %s, 0, array[%s], %s)", [write, found[0], count])


@pytest.mark.parametrize("row", ["'', '1', 0", "repeat('x', 513), '1', 0", "'a', '1', -32768"])
def test_a_login_of_spark_cannot_make_jobs_that_no_writer_makes(row: str, by_role: ByRole) -> None:
    conninfo = by_role.storages["spark"].conninfo
    with psycopg.connect(conninfo) as connection, pytest.raises(psycopg.errors.CheckViolation):
        commit_rows(connection, f"('fine', '1', 0), ({row})", 2)


def test_a_login_of_spark_reaches_no_table_by_naming_it_as_a_stage(by_role: ByRole) -> None:
    by_role.client.enqueue("mail", "secret", "payload")
    conninfo = by_role.storages["spark"].conninfo
    with pytest.raises(psycopg.errors.UndefinedTable, match="stage body does not exist"):
        execute(conninfo, "select pgjq.commit_write('copies', 'w', 0, '{body}', 1)")
    ((stage,),) = execute(conninfo, "select pgjq.create_stage(repeat('d', 32))")
    refused = (
        f"table pgjq.{stage}",
        f"insert into pgjq.{stage} (seq, id, payload, rank) values (1, 'a', '1', 0)",  # noqa: S608
        "select setval('pgjq.job_seq', 1)",
        "select pgjq.enqueue_staged('mail', 8, now(), null, '{}', 0, true)",
        "select pgjq.add_bodies('w', 0, 8, now(), null, '{}', true)",
        "select pgjq.open_write('mail', 'w', 0)",
        "select pgjq.close_write('w', 0, '{}', 1, 1)",
        "select pgjq.drop_old_stages(-1)",
        "select pgjq.reserve_numbers('mail', 1)",
        "create table pgjq.mine ()",
    )
    for statement in refused:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(conninfo, statement)
    execute(conninfo, "select pgjq.drop_stages(array[repeat('d', 32)])")


def test_nothing_on_an_attackers_search_path_is_reached(by_role: ByRole, server: str) -> None:
    with new_login(server) as who:
        for role in ROLES:
            execute(by_role.superuser, "grant {} to {}", f"pgjq_{role}", who["user"])
        execute(by_role.superuser, "create schema evil authorization {}", who["user"])
        execute(by_role.owner, "create function pgjq.naive() returns boolean language plpgsql security definer as"
                " 'begin return hashtext(''x'') = 1; end'")  # fmt: skip
        execute(by_role.owner, "select pgjq.record_events(true)")  # Its trigger has the owner's rights, too.
        client = by_role.client
        client.create_queue("dead")
        client.create_queue("strict", policy="key_strict_fifo")
        client.enqueue("strict", "one", 1, singleton_key="k")
        with closing(psycopg.connect(make_conninfo(by_role.superuser, **who), autocommit=True)) as attacker:
            attacker.execute(SHADOWS.encode())
            attacker.execute("grant usage on schema evil to public")
            for table in TABLES:
                attacker.execute(f"create temp table {table.removeprefix('pgjq.')} (reached int)".encode())
            attacker.execute(PATH)
            with pytest.raises(psycopg.errors.RaiseException, match="reached"):
                attacker.execute("select pgjq.naive()")
            for function, arguments in CALLS.items():
                attacker.execute(f"select pgjq.{function}({arguments})".encode())
            commit_rows(attacker, "('x', '1', 0), ('y', '2', 0), ('x', '1', 0)", 3)
            for view in (
                "backlog",
                "throughput",
                "running",
                "failing",
                "failed",
                "blocked_keys",
                "workers",
                "jobs",
                "schedules",
            ):
                attacker.execute(f"table pgjq.{view}".encode())
        execute(by_role.superuser, "drop owned by {} cascade", who["user"])
    execute(by_role.owner, "drop function pgjq.naive()")
    execute(by_role.owner, "select pgjq.record_events(false)")
    definers = "select proname from pg_proc where pronamespace = 'pgjq'::regnamespace and prosecdef"
    assert {name for (name,) in execute(by_role.owner, definers)} == CALLS.keys() | {"record_changes"}


@pytest.mark.parametrize(
    "call",
    [
        "enqueue_jobs('poison', '{a}', '{1}', '{\"options\": {\"heartbeat_seconds\": \"soon\"}}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{\"options\": {\"retention_seconds\": 1e300}}')",
        "enqueue_job('poison', 'a', '1', '{\"options\": {\"expire_in_seconds\": -1}}')",
        "enqueue_job('poison', 'a', '1', '{\"options\": {\"retry_backoff\": 1.0}}')",
        "enqueue_job('poison', 'a', '1', '{\"options\": {\"dead_letter\": null}}')",
        "enqueue_job('poison', 'a', '1', '{\"options\": {\"unheard_of\": 1}}')",
        "enqueue_job('poison', 'a', '1', '{\"options\": [1]}')",
        "enqueue_job('poison', 'a', '1', '{\"result_ttl\": \"NaN\"}')",
        "enqueue_job('poison', 'a', '1', '{\"run_at\": \"infinity\"}')",
        "enqueue_job('poison', 'a', '1', '{\"singleton_key\": \"\"}')",
        "enqueue_job('poison', repeat('a', 513), '1', '{}')",
        "enqueue_job(repeat('q', 129), 'a', '1', '{}')",
        "enqueue_job(E'a\\nb', 'a', '1', '{}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, '{9000000}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, '{1}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, '{-5}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, '{}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, '{null}')",
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, pgjq.reserve_numbers('poison', 2))",
        "enqueue_jobs('poison', '{a,b}', '{1,1}', '{}', null, pgjq.reserve_numbers('poison', 1) || 9000000)",
        "enqueue_jobs('poison', '{a,b}', '{1}', '{}')",
    ],
)
def test_a_producer_cannot_put_in_what_would_stop_others(call: str, by_role: ByRole) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(by_role.storages["producer"].conninfo, "select pgjq." + call)


def test_a_producer_reads_no_result_without_the_jobs_id(by_role: ByRole) -> None:
    queue = pgjq.Queue("private", storage=by_role.storages["owner"])
    queue.execute(lambda job: job.payload)
    with queue:
        assert queue.enqueue_and_wait("hard to guess", "a secret", timeout=30) == "a secret"
    ((last,),) = execute(by_role.owner, "select max(seq) from pgjq.body")
    counted = list(range(last + 1))
    ask = "select count(*) from pgjq.job_state('private', %(ids)s, %(seqs)s)"
    producer = by_role.storages["producer"].conninfo
    assert execute(producer, ask, ids=["a guess"], seqs=counted) == [(0,)]
    assert execute(producer, ask, ids=["hard to guess"], seqs=counted) == [(1,)]


def test_a_producer_cannot_forge_where_a_job_came_from(by_role: ByRole) -> None:
    call = """select pgjq.enqueue_jobs('forged', '{a,b}', '{1,1}', '{"source": 5}', '{null,"{\\"source\\": 5}"}')"""
    execute(by_role.storages["producer"].conninfo, call)
    assert [job.source for job in by_role.client.find_jobs("forged")] == [None, None]


def test_a_producer_cannot_use_a_number_that_another_transaction_has_reserved(by_role: ByRole) -> None:
    conninfo = by_role.storages["producer"].conninfo
    by_role.client.create_queue("numbers")
    use = "select pgjq.enqueue_jobs('numbers', '{a}', '{1}', '{}', null, %(seqs)s)"
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as two:
        dedicated = one.execute("select pgjq.reserve_numbers('numbers', 1)").fetchone()
        assert dedicated is not None
        two.execute("select pgjq.reserve_numbers('numbers', 1)")
        with pytest.raises(psycopg.errors.CheckViolation):
            two.execute(use, {"seqs": dedicated[0]})
        one.execute(use, {"seqs": dedicated[0]})
    with psycopg.connect(conninfo) as later, pytest.raises(psycopg.errors.CheckViolation):
        later.execute(use, {"seqs": dedicated[0]})
    assert [job.id for job in by_role.client.find_jobs("numbers")] == ["a"]


@pytest.mark.parametrize("role", ["producer", "owner"])
def test_a_large_batch_keeps_its_order_and_leaves_no_reservation_for_long(role: str, by_role: ByRole) -> None:
    client = pgjq.Client(by_role.storages[role])
    ids = [f"{role} {n * 7919 % 12007:05}" for n in range(12007)]
    client.enqueue_many("large", [(job_id, 1) for job_id in ids])
    client.enqueue_many("large", [(f"{role} again {n:05}", 1) for n in range(5001)])
    found = execute(
        by_role.owner, "select b.id from pgjq.body as b where b.id like %(own)s order by b.seq", own=f"{role} 0%"
    )
    assert [job_id for (job_id,) in found] == [job_id for job_id in ids if job_id.startswith(f"{role} 0")]
    ((left,),) = execute(by_role.owner, "select count(*) from pgjq.reservation")
    assert left <= 1


def test_a_limited_queue_takes_generated_ids_of_an_owner_and_of_a_producer(by_role: ByRole) -> None:
    by_role.client.create_queue("limited", policy="short")
    for role in ("producer", "owner"):
        results = pgjq.Client(by_role.storages[role]).enqueue_many("limited", [(None, n) for n in range(150)])
        assert {result.status for result in results} <= {"queued", "duplicate"}
    assert [job.state for job in by_role.client.find_jobs("limited")] == ["queued"]
