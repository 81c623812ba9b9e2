-- Queues and their definitions.

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
    existing pgjq.queue;
    made integer;
begin
    perform pgjq.check_definition(options);
    perform pg_advisory_xact_lock(hashtext('pgjq.queue'), hashtext(queue));
    select q.* into existing from pgjq.queue as q where q.name = queue;
    if not pgjq.lock_referenced_queue(options ->> 'dead_letter') then
        return 'no_dead_letter';
    end if;
    if existing.id is not null and (pgjq.policy(existing.id) <> policy or (existing.id < 0) <> partition) then
        -- For producers that could not get the lock above: see `pgjq.lock_queue_row`.
        perform from pgjq.queue as q where q.id = existing.id for update;
        if (
            existing.defined or exists (select from pgjq.body as b where b.queue_id = existing.id)
            or exists (select from pgjq.queue as q where q.dead_letter = existing.name)
        ) then
            return case when pgjq.policy(existing.id) <> policy then 'other_policy' else 'other_partition' end;
        end if;
        delete from pgjq.queue as q where q.id = existing.id;
        existing.id := null;
    end if;
    if existing.defined then
        return 'exists';
    end if;
    if existing.id is not null then
        update pgjq.queue as q
        set defined = true, warning_queue_size = create_queue.warning_queue_size, options = create_queue.options
        where q.id = existing.id;
        return 'created';
    end if;
    made := nextval('pgjq.queue_seq') * 8 * case when partition then -1 else 1 end + policy;
    insert into pgjq.queue (id, name, created_at, defined, paused, warning_queue_size, options, stats)
    values (
        made, queue, coalesce(existing.created_at, pgjq.now()), true, coalesce(existing.paused, false),
        warning_queue_size, options, existing.stats
    );
    if partition then
        perform pgjq.create_partitions(made);
    end if;
    return 'created';
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
    existing pgjq.queue;
    part text;
    needed_by text;
begin
    perform pg_advisory_xact_lock(hashtext('pgjq.queue'), hashtext(queue));
    select q.* into existing from pgjq.queue as q where q.name = queue for update;
    if not found then
        return 'unknown';
    end if;
    select q.name into needed_by from pgjq.queue as q where q.dead_letter = queue order by q.name limit 1;
    if found then
        return 'needed by ' || needed_by;
    end if;
    if existing.id < 0 then
        foreach part in array array['job', 'done', 'progress', 'attempt', 'body'] loop
            execute format('drop table if exists %s.%I', pgjq.schema_name(), part || '_' || -existing.id);
        end loop;
    else
        delete from pgjq.job as j where j.queue_id = existing.id;
        delete from pgjq.done as d where d.queue_id = existing.id;
        delete from pgjq.progress as p where p.queue_id = existing.id;
        delete from pgjq.attempt as a where a.queue_id = existing.id;
        delete from pgjq.body as b where b.queue_id = existing.id;
    end if;
    delete from pgjq.time_slot as s where s.queue_id = existing.id;
    delete from pgjq.queue as q where q.id = existing.id;
    perform pgjq.notify_waiters(array[pgjq.end_notification(queue, null, 'deleted')]);
    return 'deleted';
end
$$;
