-- Bodies of a bulk write: see 0001_bulk_writes.sql.

-- The task that a staged payload names. Most payloads name none, and are not parsed. A NUL in a text is valid JSON, but
-- PostgreSQL cannot read it: such a payload names no task here.
create function pgjq.staged_task(payload json) returns text
language sql immutable
return case when
        strpos(payload::text, '"task"') > 0 and strpos(payload::text, '\u0000') = 0
        and json_typeof(payload) = 'object' and json_typeof(payload -> 'task') = 'string'
        then pgjq.valid_task_name(payload ->> 'task')
end;

-- A statement that adds the bodies of a query's rows, at the time $1 to queue $2 with options $3, in the order of ids.
create function pgjq.insert_bodies_statement(staged text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select format(
        'insert into %1$s.body (seq, created_at, queue_id, id, payload, options, task)
        select s.seq, $1, $2, s.id, convert_to(s.payload::text, ''UTF8''), nullif($3 - ''retry_limit'', ''{}''),
            %1$s.staged_task(s.payload)
        from (%2$s) as s order by s.id, s.seq', pgjq.schema_name(), staged
    )
$$;

-- Add bodies of a large write without waiting for another transaction; return how many, or null if some id is taken.
-- Checking every id before the insert would double the time. Bodies that are added in their own transaction are
-- committed while the transaction that adds the jobs holds its lock.
--
-- With four fifths of the bodies in one transaction, and `the_rest` and the jobs in the other, both end at about the
-- same time. Bodies are added in parts of some 30 megabytes, each in the order of its ids: the numbers and ids of a
-- part are then close in their indexes, and the part is sorted in memory.
create function pgjq.add_bodies(
    write_id text, batch bigint, queue_id integer, at timestamptz, options jsonb, stages text[], the_rest boolean
) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
set lock_timeout = '100ms'
as $$
declare
    parts constant integer := 5 * (1 + pgjq.stage_pages(stages) / 20000);
    cut constant integer := parts * 4 / 5;
    more bigint;
    added bigint := 0;
begin
    if not the_rest then
        -- This commit need not wait for the disk: the commit of the jobs is later in the log, and flushes both.
        perform set_config('synchronous_commit', 'off', true);
        insert into pgjq.bulk_body (id, batch, queue_id, created_at) values (write_id, batch, queue_id, at);
    end if;
    for part in case when the_rest then cut else 0 end .. case when the_rest then parts else cut end - 1 loop
        execute pgjq.insert_bodies_statement(pgjq.staged_rows_query(stages, part, parts)) using at, queue_id, options;
        get diagnostics more = row_count;
        added := added + more;
    end loop;
    return added;
exception when unique_violation or lock_not_available then
    return null;
end
$$;

-- Remove the bodies without jobs that writers have left in a queue, or in any. Bodies of a writer that may be about to
-- commit, which holds the queue's lock, are skipped. Run it in its own transaction, so that no session waits long for
-- the lock or for an id that is free again.
create function pgjq.remove_orphan_bodies(queue text default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    found pgjq.bulk_body;
begin
    for found in
        select w.* from pgjq.bulk_body as w
        where queue is null or w.queue_id = (select q.id from pgjq.queue as q where q.name = queue)
    loop
        continue when not pg_try_advisory_xact_lock(hashtext('pgjq.write'), found.queue_id);
        delete from pgjq.bulk_body as w
        where w.id = found.id and w.batch = found.batch and w.created_at = found.created_at;
        delete from pgjq.body as b
        where
            b.queue_id = found.queue_id and b.created_at = found.created_at
            and not exists (select from pgjq.job as j where j.seq = b.seq and j.queue_id = b.queue_id)
            and not exists (select from pgjq.done as d where d.seq = b.seq and d.queue_id = b.queue_id);
    end loop;
end
$$;
