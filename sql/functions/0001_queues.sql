-- Queues and their definitions.

-- Keep a queue that will be referred to from being deleted until this transaction ends; return whether it exists. Waits
-- for a delete in flight. Null is no queue and returns true.
create function pgjq.lock_referenced_queue(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from pgjq.queue as q where q.name = lock_referenced_queue.queue for key share;
    return found or lock_referenced_queue.queue is null;
end
$$;

-- Refuse options of a definition outside of the bounds of `pgjq/options.py`: its jobs inherit them.
create function pgjq.check_definition(options jsonb) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not (
        pgjq.are_valid_options(options - 'retry_limit') and coalesce(
            jsonb_typeof(options -> 'retry_limit') = 'number'
            and (options -> 'retry_limit')::numeric between 0 and 32766
            and (options -> 'retry_limit')::numeric % 1 = 0, not options ? 'retry_limit'
        )
    ) then
        raise exception 'a setting of the queue is unknown, or out of bounds: %', options
        using errcode = 'check_violation', hint = 'the bounds are in docs/queues.md';
    end if;
end
$$;

-- Define a queue; return created, exists, other_policy, other_partition, or no_dead_letter.
--
-- A queue that its first job has created can still be defined while it holds no job, or if it keeps its policy and
-- partition; it stays paused if it is. Of any number of callers one creates it and the others find it: they wait for
-- each other, and for all callers that enqueue into it, on one lock.
create function pgjq.create_queue(
    queue text, policy integer, partition boolean, warning_queue_size integer, options jsonb
) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
-- A session that waits for a table lock blocks all later ones; after deadlock_timeout it may make others fail. So it
-- gives up soon, and the client repeats the call.
set lock_timeout = '500ms'
as $$
#variable_conflict use_variable
declare
    there pgjq.queue;
    made integer;
begin
    perform pgjq.check_definition(options);
    perform pg_advisory_xact_lock(hashtext('pgjq.queue'), hashtext(queue));
    select q.* into there from pgjq.queue as q where q.name = queue;
    if not pgjq.lock_referenced_queue(options ->> 'dead_letter') then
        return 'no_dead_letter';
    end if;
    if there.id is not null and ((there.id & 7) <> policy or (there.id < 0) <> partition) then
        -- For producers that could not get the lock above: see `pgjq.lock_queue_row`.
        perform from pgjq.queue as q where q.id = there.id for update;
        if (
            there.defined or exists (select from pgjq.body as b where b.queue_id = there.id)
            or exists (select from pgjq.queue as q where q.dead_letter = there.name)
        ) then
            return case when (there.id & 7) <> policy then 'other_policy' else 'other_partition' end;
        end if;
        delete from pgjq.queue as q where q.id = there.id;
        there.id := null;
    end if;
    if there.defined then
        return 'exists';
    end if;
    if there.id is not null then
        update pgjq.queue as q
        set defined = true, warning_queue_size = create_queue.warning_queue_size, options = create_queue.options
        where q.id = there.id;
        return 'created';
    end if;
    made := nextval('pgjq.queue_seq') * 8 * case when partition then -1 else 1 end + policy;
    insert into pgjq.queue (id, name, created_at, defined, paused, warning_queue_size, options, stats)
    values (
        made, queue, coalesce(there.created_at, pgjq.now()), true, coalesce(there.paused, false),
        warning_queue_size, options, there.stats
    );
    if partition then
        perform pgjq.create_partitions(made);
    end if;
    return 'created';
end
$$;

-- Create partitions for a queue. Indexes and constraints come from the parent tables.
create function pgjq.create_partitions(queue_id integer) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    home constant text := (
        select c.relnamespace::regnamespace from pg_class as c
        where c.oid = (select q.tableoid from pgjq.queue as q where q.id = create_partitions.queue_id)
    );
    part text;
begin
    foreach part in array array['body', 'job', 'done', 'progress'] loop
        execute format(
            'create table %s.%I partition of %s.%I for values in (%s)',
            home, part || '_' || -queue_id, home, part, queue_id
        );
    end loop;
    execute format(
        'alter table %s.%I set (fillfactor = 85, autovacuum_vacuum_scale_factor = 0, '
        'autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)', home, 'job_' || -queue_id
    );
    if (queue_id & 7) = 5 then
        execute format(
            'alter table %s.%I add constraint job_needs_key check (singleton_key is not null)',
            home, 'job_' || -queue_id
        );
    end if;
    foreach part in array array['queue_id', 'rank', 'state', 'ready', 'lease', 'run_at', 'locked_until'] loop
        execute format('alter table %s.%I alter column %I set statistics 0', home, 'job_' || -queue_id, part);
    end loop;
end
$$;

-- Change a definition; null removes a setting. Returns changed, unknown, or no_dead_letter. Existing jobs keep the
-- options that they have inherited.
create function pgjq.update_queue(queue text, changes jsonb) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    perform pgjq.check_definition(jsonb_strip_nulls(changes) - 'warning_queue_size');
    if not pgjq.lock_referenced_queue(changes ->> 'dead_letter') then
        return 'no_dead_letter';
    end if;
    update pgjq.queue as q
    set
        defined = true,
        warning_queue_size = case when changes ? 'warning_queue_size'
            then (changes ->> 'warning_queue_size')::integer else q.warning_queue_size end,
        options = nullif(
            jsonb_strip_nulls(coalesce(q.options, '{}') || (changes - 'warning_queue_size')), '{}'
        )
    where q.name = queue;
    return case when found then 'changed' else 'unknown' end;
end
$$;

-- Delete a queue and all its jobs, also running ones; return deleted, unknown, or the name of a queue whose dead letter
-- queue it is. Partitions of its own are dropped, however many jobs they hold. Waiters get one notification for the
-- whole queue: each then reads its own job, and finds it gone.
create function pgjq.delete_queue(queue text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'  -- as above
as $$
#variable_conflict use_variable
declare
    there pgjq.queue;
    home text;
    part text;
    needed_by text;
begin
    perform pg_advisory_xact_lock(hashtext('pgjq.queue'), hashtext(queue));
    select q.* into there from pgjq.queue as q where q.name = queue for update;
    if not found then
        return 'unknown';
    end if;
    select q.name into needed_by from pgjq.queue as q where q.dead_letter = queue order by q.name limit 1;
    if found then
        return 'needed by ' || needed_by;
    end if;
    if there.id < 0 then
        home := (
            select c.relnamespace::regnamespace from pg_class as c
            where c.oid = (select q.tableoid from pgjq.queue as q where q.id = there.id)
        );
        foreach part in array array['job', 'done', 'progress', 'body'] loop
            execute format('drop table if exists %s.%I', home, part || '_' || -there.id);
        end loop;
    else
        delete from pgjq.job as j where j.queue_id = there.id;
        delete from pgjq.done as d where d.queue_id = there.id;
        delete from pgjq.progress as p where p.queue_id = there.id;
        delete from pgjq.body as b where b.queue_id = there.id;
    end if;
    delete from pgjq.time_slot as s where s.queue_id = there.id;
    delete from pgjq.queue as q where q.id = there.id;
    perform pgjq.notify_waiters(array[pgjq.end_notification(queue, null, 'deleted')]);
    return 'deleted';
end
$$;

-- Count every queue's jobs by state and store the counts; return queues that have grown past their warning_queue_size,
-- each once until it has been shorter again.
--
-- One pass over the live jobs of all queues; over the endings only on request, because they may be many.
create function pgjq.record_queue_stats(with_endings boolean) returns table (queue text, count integer, size integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if record_queue_stats.with_endings then
        perform pgjq.unblock_forgotten_keys();
    end if;
    with live as materialized (
        select
            j.queue_id,
            count(*) filter (where j.state = 0 and j.run_at > pgjq.now()) as deferred,
            count(*) filter (where j.state = 0 and j.run_at <= pgjq.now()) as ready,
            count(*) filter (where j.state = 1) as processing,
            count(*) filter (where j.state = 2) as failing,
            extract(epoch from pgjq.now() - min(j.run_at) filter (where j.state <> 1 and j.run_at <= pgjq.now())) as age
        from pgjq.job as j
        group by j.queue_id
    ),

    ended as materialized (
        select
            d.queue_id,
            count(*) filter (where d.state = 3) as completed,
            count(*) filter (where d.state = 4) as failed,
            count(*) filter (where d.state = 5) as cancelled
        from pgjq.done as d
        where record_queue_stats.with_endings and not d.superseded
        group by d.queue_id
    )

    update pgjq.queue as q
    set stats = coalesce(q.stats, '{}') || jsonb_build_object(
        'deferred', coalesce(l.deferred, 0), 'ready', coalesce(l.ready, 0), 'processing', coalesce(l.processing, 0),
        'failing', coalesce(l.failing, 0), 'oldest_ready_age', l.age, 'counted_at', pgjq.now()
    ) || case when record_queue_stats.with_endings then jsonb_build_object(
        'completed', coalesce(e.completed, 0), 'failed', coalesce(e.failed, 0), 'cancelled', coalesce(e.cancelled, 0)
    ) else '{}' end
    from pgjq.queue as o
    left join live as l on l.queue_id = o.id
    left join ended as e on e.queue_id = o.id
    where q.id = o.id;

    return query
    with sized as (
        select
            q.id, q.name, q.warned, q.warning_queue_size as size,
            ((q.stats ->> 'deferred')::bigint + (q.stats ->> 'ready')::bigint + (q.stats ->> 'failing')::bigint)::integer
                as waiting
        from pgjq.queue as q
    ),

    crossed as (
        update pgjq.queue as q set warned = not q.warned
        from sized as s
        where q.id = s.id and q.warned <> coalesce(s.waiting > s.size, false)
        returning q.name, q.warned, s.waiting, s.size
    )

    select c.name, c.waiting, c.size from crossed as c where c.warned;
end
$$;
