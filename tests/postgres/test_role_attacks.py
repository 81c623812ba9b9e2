"""What somebody with a login of a role would try in order to do more than the role may."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import pgjq
from tests.postgres.conftest import ROLES, TABLES, House, execute, new_login


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
    "delete_jobs": "'mail', '{one}'",
    "redrive": "'dead', 10, null",
    "create_queue": "'own', 3, true, 5, '{\"retry_limit\": 1}'",
    "update_queue": "'own', '{\"retry_limit\": 2}'",
    "delete_queue": "'own'",
    "describe_jobs": "'{8}', '{1}'",
    "record_minutes": "",
    "begin_action": "'ann', 'retry', 'q', '{one}'",
    "end_action": "1, 1",
    "create_schedule": "'tick', 'mail', '1', every => 60",
    "due_schedules": "10",
    "tick": '\'[{"name": "tick", "revision": 0, "ticks": [{"tick": "2026-01-01T00:00:00Z"}], "settings": {}}]\'',
    "pause_schedule": "'tick'",
    "resume_schedule": "'tick'",
    "delete_schedule": "'tick'",
}


def test_nothing_on_an_attackers_search_path_is_reached(house: House, server: str) -> None:
    with new_login(server) as who:
        for role in ROLES:
            execute(house.superuser, "grant {} to {}", f"pgjq_{role}", who["user"])
        execute(house.superuser, "create schema evil authorization {}", who["user"])
        execute(house.owner, "create function pgjq.naive() returns boolean language plpgsql security definer as"
                " 'begin return hashtext(''x'') = 1; end'")  # fmt: skip
        client = house.client
        client.create_queue("dead")
        client.create_queue("strict", policy="key_strict_fifo")
        client.enqueue("strict", "one", 1, singleton_key="k")
        with closing(psycopg.connect(make_conninfo(house.superuser, **who), autocommit=True)) as attacker:
            attacker.execute(SHADOWS.encode())
            attacker.execute("grant usage on schema evil to public")
            for table in TABLES:
                attacker.execute(f"create temp table {table.removeprefix('pgjq.')} (reached int)".encode())
            attacker.execute(PATH)
            with pytest.raises(psycopg.errors.RaiseException, match="reached"):
                attacker.execute("select pgjq.naive()")
            for function, arguments in CALLS.items():
                attacker.execute(f"select pgjq.{function}({arguments})".encode())
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
        execute(house.superuser, "drop owned by {} cascade", who["user"])
    execute(house.owner, "drop function pgjq.naive()")
    definers = "select proname from pg_proc where pronamespace = 'pgjq'::regnamespace and prosecdef"
    assert {name for (name,) in execute(house.owner, definers)} == CALLS.keys()


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
        "enqueue_jobs('poison', '{a}', '{1}', '{}', null, (pgjq.reserve_numbers('poison', 2)).seqs[1:1] || 7)",
    ],
)
def test_a_producer_cannot_put_in_what_would_stop_others(call: str, house: House) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(house.storages["producer"].conninfo, "select pgjq." + call)


def test_a_producer_reads_no_result_without_the_jobs_id(house: House) -> None:
    queue = pgjq.Queue("private", storage=house.storages["owner"])
    queue.execute(lambda job: job.payload)
    with queue:
        assert queue.enqueue_and_wait("hard to guess", "a secret", timeout=30) == "a secret"
    ((last,),) = execute(house.owner, "select max(seq) from pgjq.body")
    counted = list(range(last + 1))
    ask = "select count(*) from pgjq.job_state('private', %(ids)s, %(seqs)s)"
    producer = house.storages["producer"].conninfo
    assert execute(producer, ask, ids=["a guess"], seqs=counted) == [(0,)]
    assert execute(producer, ask, ids=["hard to guess"], seqs=counted) == [(1,)]


def test_a_producer_cannot_forge_where_a_job_came_from(house: House) -> None:
    call = """select pgjq.enqueue_jobs('forged', '{a,b}', '{1,1}', '{"source": 5}', '{null,"{\\"source\\": 5}"}')"""
    execute(house.storages["producer"].conninfo, call)
    assert [job.source for job in house.client.find_jobs("forged")] == [None, None]


def test_a_producer_cannot_use_a_number_that_another_transaction_has_reserved(house: House) -> None:
    conninfo = house.storages["producer"].conninfo
    house.client.create_queue("numbers")
    use = "select pgjq.enqueue_jobs('numbers', '{a}', '{1}', '{}', null, %(seqs)s)"
    with psycopg.connect(conninfo) as one, psycopg.connect(conninfo) as two:
        dedicated = one.execute("select (pgjq.reserve_numbers('numbers', 1)).seqs").fetchone()
        assert dedicated is not None
        two.execute("select pgjq.reserve_numbers('numbers', 1)")
        with pytest.raises(psycopg.errors.CheckViolation):
            two.execute(use, {"seqs": dedicated[0]})
        one.execute(use, {"seqs": dedicated[0]})
    with psycopg.connect(conninfo) as later, pytest.raises(psycopg.errors.CheckViolation):
        later.execute(use, {"seqs": dedicated[0]})
    assert [job.id for job in house.client.find_jobs("numbers")] == ["a"]


@pytest.mark.parametrize("role", ["producer", "owner"])
def test_a_large_batch_keeps_its_order_and_leaves_no_reservation_for_long(role: str, house: House) -> None:
    client = pgjq.Client(house.storages[role])
    ids = [f"{role} {n * 7919 % 12007:05}" for n in range(12007)]
    client.enqueue_many("large", [(job_id, 1) for job_id in ids])
    client.enqueue_many("large", [(f"{role} again {n:05}", 1) for n in range(5001)])
    found = execute(
        house.owner, "select b.id from pgjq.body as b where b.id like %(own)s order by b.seq", own=f"{role} 0%"
    )
    assert [job_id for (job_id,) in found] == [job_id for job_id in ids if job_id.startswith(f"{role} 0")]
    ((left,),) = execute(house.owner, "select count(*) from pgjq.reservation")
    assert left <= 1


def test_a_limited_queue_takes_generated_ids_of_an_owner_and_of_a_producer(house: House) -> None:
    house.client.create_queue("limited", policy="short")
    for role in ("producer", "owner"):
        results = pgjq.Client(house.storages[role]).enqueue_many("limited", [(None, n) for n in range(150)])
        assert {result.status for result in results} <= {"queued", "duplicate"}
    assert [job.state for job in house.client.find_jobs("limited")] == ["queued"]
