-- Enqueue jobs: for the clients of pgjq.

-- Add one job, if its id is free at first sight and no policy may refuse it, and return its number. If that is null,
-- `enqueue_jobs` finds out why.
--
-- Most callers enqueue single jobs, and wait for the call. Plain values instead of arrays let PL/pgSQL keep its plans,
-- and a number instead of a set spares the caller's statement a function scan: half the time of a batch of one. Rows go
-- into the default partition by its name, which spares routing them: a seventh of the time. A queue with partitions of
-- its own takes the way of a batch.
--
-- PostgreSQL prepares an expression again in every transaction, whether or not its branches run. So a job without
-- settings in a queue without a definition has statements of its own, with the defaults of `pgjq.job_settings` as
-- constants: four fifths of the time. A test compares the rows.
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
    has_defaults constant boolean := settings = '{}' or settings = '{"awaited": true}';
    inherited jsonb;
    given bigint;
begin
    if has_defaults then
        if length(job_id) not between 1 and 512 then
            raise exception 'invalid job id or settings' using errcode = 'check_violation';
        end if;
    elsif not pgjq.is_valid_job(job_id, settings) then
        raise exception 'invalid job id or settings' using errcode = 'check_violation';
    end if;
    if not is_locked or current_setting('transaction_isolation') <> 'read committed' then
        perform pgjq.lock_queue(queue);
    end if;
    select q.id, q.options into this_queue, inherited from pgjq.queue as q where q.name = queue;
    if has_defaults then
        if pgjq.limits_keys(this_queue) then
            return null;
        end if;
    elsif (
        pgjq.limits_keys(this_queue) and (pgjq.limits_queued(this_queue) or settings ->> 'singleton_key' is null)
        or settings ? 'singleton_seconds' or settings -> 'options' ? 'dead_letter'
    ) then
        return null;
    end if;
    if this_queue is null then
        this_queue := pgjq.get_or_create_queue(queue);
    end if;
    if this_queue < 0 then
        given := nextval('pgjq.job_seq');
        perform from pgjq.add_jobs(queue, array[job_id], array[job_payload], settings, null, array[given]);
        return case when not found then given end;
    end if;
    if has_defaults and inherited is null then
        insert into pgjq.body_default (seq, created_at, queue_id, id, payload)
        values (nextval('pgjq.job_seq'), at, this_queue, job_id, job_payload)
        on conflict (queue_id, id) where not superseded do nothing
        returning seq into given;
        if given is null then
            return null;
        end if;
        insert into pgjq.job_default (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited
        )
        values (given, this_queue, at, true, 0, 3, 3600, 604800, settings ? 'awaited');
    else
        insert into pgjq.body_default (seq, created_at, queue_id, id, payload, options, task, headers)
        values (
            nextval('pgjq.job_seq'), at, this_queue, job_id, job_payload, pgjq.job_options(settings, inherited),
            settings ->> 'task', nullif(settings -> 'headers', 'null')
        )
        on conflict (queue_id, id) where not superseded do nothing
        returning seq into given;
        if given is null then
            return null;
        end if;
        insert into pgjq.job_default (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
        )
        select given, this_queue, j.* from pgjq.job_settings(settings, inherited, at) as j;
    end if;
    if pgjq.must_wake(queue) then
        perform pg_notify('pgjq.wake', queue);
    end if;
    if pgjq.has_subscribers() then
        perform pgjq.publish(array[pgjq.event('queued', queue, job_id, 0, task => settings ->> 'task')]);
    end if;
    return given;
end
$$;

-- Add a batch of jobs; return those that were not added, and why. With `numbered`, the added jobs are returned as well,
-- with their numbers.
--
-- For every producer: it removes the settings that only pgjq itself may set, and draws the numbers, or uses those that
-- this transaction has reserved. A number chosen by the caller could belong to another producer, whose jobs it would
-- keep out, or come before all others. With `generated` all ids are new: see `pgjq.add_jobs`.
create function pgjq.enqueue_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null, numbered boolean default false, generated boolean default false
) returns table (n bigint, status text, state smallint, result bytea, seq bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    drawn bigint[] := seqs;
begin
    if cardinality(payloads) <> cardinality(ids) or cardinality(seqs) <> cardinality(ids) then
        raise exception 'ids, payloads and seqs must have the same length' using errcode = 'check_violation';
    end if;
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
        or exists (select from unnest(ids) as g (id) where length(g.id) not between 1 and 512)
        or own is not null and exists (select from unnest(own) as g (own) where not pgjq.is_valid_job('own', g.own))
    ) then
        raise exception 'invalid job id or settings' using errcode = 'check_violation';
    end if;
    return query
    with refused as materialized (
        select e.n, e.status, e.state, e.result
        from pgjq.add_jobs(
            queue, ids, payloads, common - '{source,checked}'::text[],
            case when own is not null then
                array(select o.s - '{source,checked}'::text[] from unnest(own) with ordinality as o (s, n) order by o.n)
            end, drawn, generated
        ) as e
    )

    select r.n, r.status, r.state, r.result, null::bigint from refused as r
    union all
    select g.n, 'queued', null, null, g.seq
    from unnest(drawn) with ordinality as g (seq, n)
    where numbered and g.n not in (select r.n from refused as r);
end
$$;
