-- Enqueueing: one function for every producer, inside whatever transaction calls it.

-- The number of a queue, which is made on its first use.
create function pgjq.queue_id(queue text) returns integer
language plpgsql volatile
as $$
declare
    found_id integer;
begin
    loop
        select q.id into found_id from pgjq.queue as q where q.name = queue;
        if found then
            return found_id;
        end if;
        insert into pgjq.queue (name) values (queue) on conflict (name) do nothing;
    end loop;
end
$$;

-- Seconds before the retry-th retry (1, 2, …) of a job with these options; `pgjq.retry.retry_delay` in SQL.
create function pgjq.retry_delay(options jsonb, retry integer) returns double precision
language sql volatile
as $$
    select case
        when options is null then 0
        when not coalesce((options ->> 'retry_backoff')::boolean, false)
            then coalesce((options ->> 'retry_delay')::double precision, 0)
        else least(
            (options ->> 'retry_delay_max')::double precision,
            coalesce(nullif((options ->> 'retry_delay')::double precision, 0), 1)
            * (power(2, least(16, retry)) / 2 + power(2, least(16, retry)) / 2 * random())
        )
    end
$$;

-- Look at an id that is taken, and free it if its job is over. Returns nothing when the id is free now, else why not.
--
-- Finishing moves a job from `job` to `done` in one commit. This reads `job` first and `done` in a later snapshot, so
-- it sees one of the two; if it sees neither, the job went back by `retry` in between, and the next round sees it.
-- Rivals who want to free the same id queue up on the lock of its `done` row, and all but one find it superseded; so
-- does a `retry` that comes too late. `done` is locked before `body` here, as it is by delete and prune.
create function pgjq.free_id(in_queue integer, wanted text, enqueue_failed boolean)
returns table (status text, state smallint, result bytea)
language plpgsql volatile
set enable_seqscan = off  -- a session keeps these plans from when the tables were small
as $$
declare
    holder bigint;
    ended pgjq.done;
begin
    loop
        select b.seq into holder from pgjq.body as b where b.queue_id = in_queue and b.id = wanted and not b.superseded;
        if not found then
            return;
        end if;
        return query
        select 'duplicate', j.state, null::bytea from pgjq.job as j where j.seq = holder and j.queue_id = in_queue;
        if found then
            return;
        end if;
        select d.* into ended from pgjq.done as d where d.seq = holder and d.queue_id = in_queue;
        if found then
            if ended.state = 3 and ended.expires_at > pgjq.now() then
                return query select 'completed', ended.state, ended.result;
                return;
            end if;
            if ended.state = 4 and ended.expires_at > pgjq.now() and not enqueue_failed then
                return query select 'duplicate', ended.state, null::bytea;
                return;
            end if;
            update pgjq.done as d set superseded = true
            where d.seq = holder and d.queue_id = in_queue and not d.superseded;
            if found then
                update pgjq.body as b set superseded = true where b.seq = holder and b.queue_id = in_queue;
                return;
            end if;
        end if;
    end loop;
end
$$;

-- Add a batch of jobs; return those that were not added, and why. Position counts from 1.
--
-- `common` holds the settings of every job, `own` those in which a job differs: priority, run_at or delay, result_ttl,
-- max_attempts, singleton_key, on_failed, awaited, and under `options` what the job brings along for later. `seqs` are
-- numbers drawn before, when one call is more than one batch; else they are drawn here, in the order of the arrays.
--
-- Rows are inserted in the order of their ids. Two callers with some ids in common therefore wait for each other in the
-- same order and cannot deadlock; unsorted, half of such calls died. An id that a transaction in flight is inserting is
-- waited for: it is taken if that one commits, and free if not.
create function pgjq.enqueue_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null
) returns table (n bigint, status text, state smallint, result bytea)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    here constant integer := pgjq.queue_id(queue);
    at constant timestamptz := pgjq.now();
    drawn constant bigint[] := coalesce(
        seqs, array(select nextval('pgjq.job_seq') from generate_series(1, cardinality(ids)))
    );
    added text[];
    taken record;
begin
    with given as materialized (
        select
            g.seq, g.n, g.id, g.payload,
            case when g.own is null then common else common || g.own end as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
    ),

    new as (
        insert into pgjq.body (seq, created_at, queue_id, id, payload, options)
        select g.seq, at, here, g.id, g.payload, g.s -> 'options' from given as g order by g.id, g.n
        on conflict (queue_id, id) where not superseded do nothing
        returning seq, id
    ),

    born as (
        insert into pgjq.job (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
        )
        select
            g.seq, here, due.run_at, due.run_at <= at,
            -coalesce((g.s ->> 'priority')::smallint, 0), coalesce((g.s ->> 'max_attempts')::smallint, 3),
            coalesce((g.s ->> 'result_ttl')::double precision, 3600),
            coalesce((g.s -> 'options' ->> 'delete_after_seconds')::real, 604800),
            coalesce((g.s ->> 'awaited')::boolean, false), g.s ->> 'singleton_key'
        from given as g
        inner join new using (seq)
        cross join lateral (
            select coalesce(
                (g.s ->> 'run_at')::timestamptz,
                at + make_interval(secs => coalesce((g.s ->> 'delay')::double precision, 0))
            ) as run_at
        ) as due
    )

    select array_agg(new.id) into added from new;

    if cardinality(added) > 0 then
        perform pgjq.wake(queue);
        if pgjq.watched() then
            perform pgjq.publish(array_agg(pgjq.event('queued', queue, a.id, 0))) from unnest(added) as a (id);
        end if;
    end if;
    if cardinality(added) = cardinality(ids) then
        return;
    end if;

    -- The others, again in the order of their ids. A freed id is enqueued by a call of its own, in its own place.
    for taken in
        select g.n, g.seq, g.id, g.payload, g.own, common || coalesce(g.own, '{}') as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
        left join (
            select a.id, min(f.n) as n
            from unnest(added) as a (id) inner join unnest(ids) with ordinality as f (id, n) using (id)
            group by a.id
        ) as first using (id, n)
        where first.id is null
        order by g.id, g.n
    loop
        loop
            return query
            select taken.n, f.status, f.state, f.result
            from pgjq.free_id(here, taken.id, coalesce(taken.s ->> 'on_failed', 'enqueue') = 'enqueue') as f;
            exit when found;
            perform from pgjq.enqueue_jobs(
                queue, array[taken.id], array[taken.payload], common,
                case when taken.own is not null then array[taken.own] end, array[taken.seq]
            );
            exit when not found;
        end loop;
    end loop;
end
$$;

-- Add one job, if its id is free at first sight, and return its number. If it is null, `enqueue_jobs` finds out why.
--
-- One job is what most callers enqueue, and what they wait for. Plain values instead of arrays let PL/pgSQL keep its
-- plans, and a number instead of a set spares the caller's statement a function scan: half the time of a batch of
-- one.
create function pgjq.enqueue_job(queue text, job_id text, job_payload bytea, settings jsonb) returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    here integer;
    at constant timestamptz := pgjq.now();
    due constant timestamptz := coalesce(
        (settings ->> 'run_at')::timestamptz,
        at + make_interval(secs => coalesce((settings ->> 'delay')::double precision, 0))
    );
    given bigint;
begin
    select q.id into here from pgjq.queue as q where q.name = queue;
    if not found then
        here := pgjq.queue_id(queue);
    end if;
    insert into pgjq.body (seq, created_at, queue_id, id, payload, options)
    values (nextval('pgjq.job_seq'), at, here, job_id, job_payload, settings -> 'options')
    on conflict (queue_id, id) where not superseded do nothing
    returning seq into given;
    if given is null then
        return null;
    end if;
    insert into pgjq.job (
        seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
    )
    values (
        given, here, due, due <= at,
        -coalesce((settings ->> 'priority')::smallint, 0), coalesce((settings ->> 'max_attempts')::smallint, 3),
        coalesce((settings ->> 'result_ttl')::double precision, 3600),
        coalesce((settings -> 'options' ->> 'delete_after_seconds')::real, 604800),
        coalesce((settings ->> 'awaited')::boolean, false), settings ->> 'singleton_key'
    );
    perform pgjq.wake(queue);
    if pgjq.watched() then
        perform pgjq.publish(array[pgjq.event('queued', queue, job_id, 0)]);
    end if;
    return given;
end
$$;

-- Enqueue one job from SQL: select pgjq.enqueue('mail', '{"to": "ann"}', id => 'welcome-7');
create function pgjq.enqueue(
    queue text, payload jsonb, id text default null, priority integer default 0, run_at timestamptz default null,
    delay double precision default null, result_ttl double precision default null, max_attempts integer default null,
    singleton_key text default null, out job_id text, out status text, out existing_state text, out result bytea
)
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    answer record;
begin
    if queue is null or queue = '' or length(queue) > 128 or queue ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception 'a queue''s name must have 1 to 128 characters, and no control characters'
        using errcode = 'check_violation';
    end if;
    job_id := coalesce(id, gen_random_uuid()::text);
    if job_id = '' or length(job_id) > 512 then
        raise exception 'a job''s id must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if payload is null then
        raise exception 'payload must not be null; JSON''s null is ''null''::jsonb' using errcode = 'check_violation';
    end if;
    if singleton_key = '' or length(singleton_key) > 512 then
        raise exception 'singleton_key must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if run_at is not null and delay is not null then
        raise exception 'pass run_at or delay, not both' using errcode = 'check_violation';
    end if;
    -- NaN is more than anything in PostgreSQL, so it fails the upper bounds, as infinity does.
    if delay < 0 or delay > 1.7e308 or result_ttl <= 0 or result_ttl > 1.7e308 or max_attempts < 1 then
        raise exception 'delay must be at least 0, result_ttl more than 0, both finite, max_attempts at least 1'
        using errcode = 'check_violation';
    end if;
    if run_at < '0002-01-01' or run_at >= '9999-01-01' then
        raise exception 'run_at must be between the years 2 and 9998' using errcode = 'check_violation';
    end if;
    -- A century is for ever, as it is for Python's callers; more could overflow a point in time later.
    if delay > 3155760000 then
        delay := 3155760000;
    end if;
    if result_ttl > 3155760000 then
        result_ttl := 3155760000;
    end if;
    select e.status, e.state, e.result into answer
    from pgjq.enqueue_jobs(
        queue, array[job_id], array[convert_to(payload::text, 'UTF8')], jsonb_strip_nulls(jsonb_build_object(
            'priority', priority, 'run_at', run_at, 'delay', delay, 'result_ttl', result_ttl,
            'max_attempts', max_attempts, 'singleton_key', singleton_key
        ))
    ) as e;
    status := coalesce(answer.status, 'queued');
    existing_state := (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[answer.state + 1];
    result := answer.result;
end
$$;
