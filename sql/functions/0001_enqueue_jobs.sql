-- Enqueue jobs: for the clients of pgjq.

-- Add one job, if its id is free at first sight and no policy may refuse it, and return its number. If that is null,
-- `enqueue_jobs` finds out why.
--
-- Most callers enqueue single jobs, and wait for the call. Plain values instead of arrays let PL/pgSQL keep its plans,
-- and a number instead of a set spares the caller's statement a function scan: half the time of a batch of one.
create function pgjq.enqueue_job(queue text, job_id text, job_payload bytea, settings jsonb) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    this_queue integer;
    at constant timestamptz := pgjq.now();
    -- Inlined `pgjq.lock_queue`.
    is_locked constant boolean := pg_try_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue));
    inherited jsonb;
    given bigint;
begin
    if not pgjq.is_valid_job(job_id, settings) then
        raise exception 'a job has an id or settings that cannot be' using errcode = 'check_violation';
    end if;
    if not is_locked or current_setting('transaction_isolation') <> 'read committed' then
        perform pgjq.lock_queue(queue);
    end if;
    select q.id, q.options into this_queue, inherited from pgjq.queue as q where q.name = queue;
    if (
        (this_queue & 7) > 0 and ((this_queue & 7) in (1, 3, 4) or settings ->> 'singleton_key' is null)
        or settings ? 'singleton_seconds' or settings -> 'options' ? 'dead_letter'
    ) then
        return null;
    end if;
    if this_queue is null then
        this_queue := pgjq.get_or_create_queue(queue);
    end if;
    insert into pgjq.body (seq, created_at, queue_id, id, payload, options, task, headers)
    values (
        nextval('pgjq.job_seq'), at, this_queue, job_id, job_payload, pgjq.job_options(settings, inherited),
        settings ->> 'task', nullif(settings -> 'headers', 'null')
    )
    on conflict (queue_id, id) where not superseded do nothing
    returning seq into given;
    if given is null then
        return null;
    end if;
    insert into pgjq.job (
        seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
    )
    select given, this_queue, j.* from pgjq.job_settings(settings, inherited, at) as j;
    perform pgjq.wake(queue);
    if pgjq.has_subscribers() then
        perform pgjq.publish(array[pgjq.event('queued', queue, job_id, 0, task => settings ->> 'task')]);
    end if;
    return given;
end
$$;

-- The same for every producer: removes the settings that only pgjq itself may set, and draws the numbers, or uses those
-- that this transaction has reserved. A number chosen by the caller could belong to another producer, whose jobs it
-- would keep out, or come before all others. With `numbered`, the added jobs are returned as well, with their numbers.
create function pgjq.enqueue_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null, numbered boolean default false
) returns table (n bigint, status text, state smallint, result bytea, seq bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    drawn bigint[] := seqs;
begin
    if seqs is not null and not exists (
        select from pgjq.reservation as r
        where
            r.xid = pg_current_xact_id_if_assigned()
            and r.seqs @> (select range_agg(int8range(s.seq, s.seq, '[]')) from unnest(enqueue_jobs.seqs) as s (seq))
    ) then
        raise exception 'seqs must be numbers that this transaction has reserved' using errcode = 'check_violation';
    end if;
    if numbered then
        drawn := coalesce(drawn, array(select nextval('pgjq.job_seq') from generate_series(1, cardinality(ids))));
    end if;
    if (
        not pgjq.is_valid_job('common', common)
        or exists (select from unnest(ids, own) as g (id, own) where not pgjq.is_valid_job(g.id, g.own))
    ) then
        raise exception 'a job has an id or settings that cannot be' using errcode = 'check_violation';
    end if;
    return query
    with refused as materialized (
        select e.n, e.status, e.state, e.result
        from pgjq.add_jobs(
            queue, ids, payloads, common - '{source,checked}'::text[],
            case when own is not null then
                array(select o.s - '{source,checked}'::text[] from unnest(own) with ordinality as o (s, n) order by o.n)
            end, drawn
        ) as e
    )

    select r.n, r.status, r.state, r.result, null::bigint from refused as r
    union all
    select g.n, 'queued', null, null, g.seq
    from unnest(drawn) with ordinality as g (seq, n)
    where numbered and g.n not in (select r.n from refused as r);
end
$$;
