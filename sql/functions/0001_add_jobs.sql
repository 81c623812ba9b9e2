-- Add jobs to a queue, inside the transaction of the caller.

-- Add a batch of jobs; return those that were not added, and why. Position counts from 1.
--
-- `common` holds the settings of every job, `own` those in which a job differs: priority, run_at or delay, result_ttl,
-- max_attempts, singleton_key, on_failed, awaited, task, headers, backoff, and under `options` the job's own options.
-- `seqs` are numbers drawn before, if one call needs several batches; else they are drawn here, in the order of the
-- arrays. A job inherits here the options of the queue's definition that it does not set, and keeps them.
--
-- Rows are inserted in the order of their ids. Two callers with ids in common therefore wait for each other in the same
-- order and cannot deadlock; unsorted, half of such calls failed. The insert waits for a transaction in flight that
-- inserts the same id: the id is taken if it commits, and free if not.
--
-- Jobs that all have the settings `common` read them once, and not once for each job, and need no join of what was
-- given with what was inserted: a tenth less of the server's time.
--
-- With `generated` pgjq has just generated the ids, so they are not taken, and they ascend. A batch that shares its
-- settings is then inserted as it is: without looking for each id first, without sorting, and without returning rows,
-- which takes a third off the server's time. An id that is taken nevertheless is a unique violation.
create function pgjq.add_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null, generated boolean default false
) returns table (n bigint, status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    is_locked constant boolean := pgjq.lock_queue(queue);
    this_queue integer := (select q.id from pgjq.queue as q where q.name = queue);
    at constant timestamptz := pgjq.now();
    inherited constant jsonb := (select q.options from pgjq.queue as q where q.id = this_queue);
    drawn constant bigint[] := coalesce(
        seqs, array(select nextval('pgjq.job_seq') from generate_series(1, cardinality(ids)))
    );
    kept constant jsonb := pgjq.job_options(common, inherited);
    added text[];
    tasks text[];
begin
    if pgjq.is_strict(this_queue) or common -> 'options' ? 'dead_letter' or own is not null then
        return query
        select w.n, w.status, null::smallint, null::bytea
        from pgjq.find_invalid_jobs(this_queue, common, own, ids) as w;
        if found then
            return;
        end if;
    end if;
    this_queue := coalesce(this_queue, pgjq.get_or_create_queue(queue));
    if not common ? 'checked' and (
        pgjq.limits_queued(this_queue) or common ->> 'singleton_seconds' is not null
        or exists (select from unnest(own) as o (s) where o.s ->> 'singleton_seconds' is not null)
    ) then
        return query
        select g.n, e.status, e.state, e.result
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
        cross join lateral pgjq.add_limited_job(
            queue, this_queue, g.seq, g.id, g.payload, common || coalesce(g.own, '{}')
        ) as e
        order by g.n;
        return;
    end if;

    if own is null and generated then
        with j as materialized (select j.* from pgjq.job_settings(common, inherited, at) as j),

        bodies as (
            insert into pgjq.body (seq, created_at, queue_id, id, payload, options, task, headers)
            select
                g.seq, at, this_queue, g.id, g.payload, kept, common ->> 'task', nullif(common -> 'headers', 'null')
            from unnest(drawn, ids, payloads) as g (seq, id, payload)
        )

        insert into pgjq.job (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
        )
        select g.seq, this_queue, j.* from unnest(drawn) as g (seq) cross join j;
        added := ids;
        tasks := array_fill(common ->> 'task', array[cardinality(ids)]);
    elsif own is null then
        with j as materialized (select j.* from pgjq.job_settings(common, inherited, at) as j),

        new as (
            insert into pgjq.body (seq, created_at, queue_id, id, payload, options, source, task, headers)
            select
                g.seq, at, this_queue, g.id, g.payload, kept, common -> 'source', common ->> 'task',
                nullif(common -> 'headers', 'null')
            from unnest(drawn, ids, payloads) with ordinality as g (seq, id, payload, n) order by g.id collate "C", g.n
            on conflict (queue_id, id) where not superseded do nothing
            returning seq, id, task
        ),

        live as (
            insert into pgjq.job (
                seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
            )
            select new.seq, this_queue, j.* from new cross join j
        )

        select array_agg(new.id), array_agg(new.task) into added, tasks from new;
    else
        select i.added, i.tasks into added, tasks
        from pgjq.insert_jobs_that_differ(this_queue, at, inherited, ids, payloads, common, own, drawn) as i;
    end if;

    if cardinality(added) > 0 then
        perform pgjq.wake(queue);
        if pgjq.has_subscribers() then
            perform pgjq.publish(array_agg(pgjq.event('queued', queue, a.id, 0, task => a.task)))
            from unnest(added, tasks) as a (id, task);
        end if;
    end if;
    if cardinality(added) = cardinality(ids) then
        return;
    end if;

    return query
    select t.n, t.status, t.state, t.result
    from pgjq.add_taken_jobs(queue, this_queue, ids, payloads, common, own, drawn, added) as t;
end
$$;

-- Insert the jobs of a batch that differ in their settings and whose ids are free, in the order of their ids; return
-- the ids and the tasks of the inserted ones.
create function pgjq.insert_jobs_that_differ(
    this_queue integer, at timestamptz, inherited jsonb, ids text[], payloads bytea[], common jsonb, own jsonb[],
    drawn bigint[], out added text[], out tasks text[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    with given as materialized (
        select
            g.seq, g.n, g.id, g.payload,
            common || coalesce(g.own, '{}') as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
    ),

    new as (
        insert into pgjq.body (seq, created_at, queue_id, id, payload, options, source, task, headers)
        select
            g.seq, at, this_queue, g.id, g.payload, pgjq.job_options(g.s, inherited), g.s -> 'source',
            g.s ->> 'task', nullif(g.s -> 'headers', 'null')
        from given as g order by g.id collate "C", g.n
        on conflict (queue_id, id) where not superseded do nothing
        returning seq, id, task
    ),

    live as (
        insert into pgjq.job (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
        )
        select g.seq, this_queue, j.*
        from given as g
        inner join new using (seq)
        cross join lateral pgjq.job_settings(g.s, inherited, at) as j
    )

    select array_agg(new.id), array_agg(new.task) into added, tasks from new;
end
$$;

-- Add the jobs of a batch whose ids were taken at first sight, again in the order of their ids; return those that were
-- not added, and why. Each freed id is enqueued by its own call, with the number that was drawn for it.
create function pgjq.add_taken_jobs(
    queue text, this_queue integer, ids text[], payloads bytea[], common jsonb, own jsonb[], drawn bigint[],
    added text[]
) returns table (n bigint, status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    taken record;
begin
    for taken in
        select g.n, g.seq, g.id, g.payload, g.own, common || coalesce(g.own, '{}') as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
        left join (
            select a.id, min(f.n) as n
            from unnest(added) as a (id) inner join unnest(ids) with ordinality as f (id, n) using (id)
            group by a.id
        ) as first using (id, n)
        where first.id is null
        order by g.id collate "C", g.n
    loop
        loop
            return query
            select taken.n, f.status, f.state, f.result
            from pgjq.free_id(this_queue, taken.id, coalesce(taken.s ->> 'on_failed', 'enqueue') = 'enqueue') as f;
            exit when found;
            perform from pgjq.add_jobs(
                queue, array[taken.id], array[taken.payload], common,
                case when taken.own is not null then array[taken.own] end, array[taken.seq]
            );
            exit when not found;
        end loop;
    end loop;
end
$$;
