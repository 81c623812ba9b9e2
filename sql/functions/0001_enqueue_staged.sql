-- Enqueue the rows on the stages of a bulk write: see 0001_bulk_writes.sql.

-- Make jobs of all rows on these stages, in an opened write; return how many were added, and how many were not, because
-- their ids or slots were taken. With `apart`, `add_bodies` adds all the bodies.
--
-- It does what `pgjq.add_jobs` does, for more rows than arrays can hold. As there, rows are added in the order of ids,
-- so that two callers with ids in common cannot deadlock. An id whose job has ended, and all jobs that a policy may
-- refuse, go through that function.
create function pgjq.enqueue_staged(
    queue text, this_queue integer, at timestamptz, inherited jsonb, stages text[], expected bigint, apart boolean,
    out jobs bigint, out duplicates bigint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
#variable_conflict use_variable
declare
    own_schema constant text := pgjq.schema_name();
    staged text := pgjq.staged_rows_query(stages);
    defaults record;
    keyless bigint;
begin
    jobs := 0;
    duplicates := 0;
    select d.* into defaults from pgjq.job_settings('{}', inherited, at) as d;

    if pgjq.is_strict(this_queue) and expected > 0 then
        execute format('select count(*) from (%s) as s where s.singleton_key is null', staged) into keyless;
        if keyless > 0 then
            raise exception 'every job needs a singleton_key: queue % keeps each key in strict order', queue
            using errcode = 'check_violation';
        end if;
    end if;

    if not pgjq.limits_queued(this_queue) and expected > 0 then
        if not apart then
            execute pgjq.insert_bodies_statement(staged)
                || ' on conflict (queue_id, id) where not superseded do nothing'
            using at, this_queue, inherited;
            get diagnostics jobs = row_count;
        end if;
        execute format(
            'insert into %1$s.job (
                seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key
            )
            select
                s.seq, $2, coalesce(s.run_at, $1), coalesce(s.run_at, $1) <= $1, s.rank, $3, $4, $5,
                s.singleton_key
            from (%2$s) as s
            where $6 or exists (
                select from %1$s.body as b where b.seq = s.seq and b.queue_id = $2 and b.created_at = $1
            )', own_schema, staged
        ) using
            at, this_queue, defaults.max_attempts, defaults.result_ttl, defaults.delete_after,
            apart or jobs = expected;
        get diagnostics jobs = row_count;
        if jobs > 0 then
            perform pgjq.wake(queue);
        end if;
        if jobs > 0 and pgjq.has_subscribers() then
            perform pgjq.publish_staged(queue, this_queue, at, staged, apart or jobs = expected);
        end if;
    end if;

    if jobs < expected and not apart and not pgjq.limits_queued(this_queue) then
        -- Most rows with a taken id are duplicates at first sight, and are only counted.
        execute format(
            'create temporary table rest on commit drop as
            select s.*, coalesce(
                exists (select from %1$s.job as j where j.seq = b.seq and j.queue_id = $1)
                or exists (
                    select from %1$s.done as d
                    where d.seq = b.seq and d.queue_id = $1 and d.state = 3 and d.expires_at > $2
                ), false
            ) as is_taken
            from (%2$s) as s
            left join %1$s.body as b on b.queue_id = $1 and b.id = s.id and not b.superseded
            where b.seq is distinct from s.seq or b.created_at <> $2', own_schema, staged
        ) using this_queue, at;
        execute 'delete from pg_temp.rest where is_taken';
        get diagnostics duplicates = row_count;
        staged := 'select * from pg_temp.rest';
    end if;

    if jobs + duplicates < expected and not apart then
        select jobs + r.jobs, duplicates + r.duplicates into jobs, duplicates
        from pgjq.add_staged_rows(queue, staged) as r;
    end if;

    if jobs + duplicates <> expected then
        raise exception '% rows were staged, but % were added or skipped', expected, jobs + duplicates;
    end if;
    if apart then
        -- Until the commit, the bodies are about to become jobs: see `pgjq.free_id`.
        perform pgjq.lock_bulk_write(this_queue);
    end if;
end
$$;

-- Show until this transaction ends that it is about to commit a bulk write into a queue.
create function pgjq.lock_bulk_write(this_queue integer) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'  -- any login can hold the lock
as $$
begin
    perform pg_advisory_xact_lock_shared(hashtext('pgjq.write'), this_queue);
exception when lock_not_available then
    raise exception 'the lock of bulk writes has been held for 10 s'
    using errcode = 'lock_not_available', hint = 'pg_locks shows who holds the advisory lock';
end
$$;

-- Publish a `queued` event for each row of a query on stages; without `all_added` only for those with bodies that were
-- added at `at`. In the order of their numbers, a thousand at a time.
create function pgjq.publish_staged(
    queue text, this_queue integer, at timestamptz, staged text, all_added boolean
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
begin
    execute format(
        'select sum(%1$s.publish(p.events)) from (
            select array_agg(%1$s.event(
                ''queued'', $1, s.id, 0, task => %1$s.staged_task(s.payload)
            ) order by s.seq) as events
            from (%2$s) as s
            where $3 or exists (
                select from %1$s.body as b where b.seq = s.seq and b.queue_id = $2 and b.created_at = $4
            )
            group by s.seq / 1000
        ) as p', pgjq.schema_name(), staged
    ) using queue, this_queue, all_added, at;
end
$$;

-- Add the rows of a query on stages by `pgjq.add_jobs`, a thousand at a time in the order of ids; return how many were
-- added, and how many were not.
create function pgjq.add_staged_rows(queue text, staged text, out jobs bigint, out duplicates bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    part record;
    refused bigint;
begin
    jobs := 0;
    duplicates := 0;
    for part in execute format(
        'select array_agg(r.id) as ids, array_agg(r.payload) as payloads, array_agg(r.seq) as seqs,
            array_agg(r.own) as own
        from (
            select
                s.id, convert_to(s.payload::text, ''UTF8'') as payload, s.seq,
                row_number() over (order by s.id, s.seq) / 1000 as page,
                jsonb_strip_nulls(jsonb_build_object(
                    ''priority'', -s.rank, ''run_at'', s.run_at, ''singleton_key'', s.singleton_key,
                    ''task'', %1$s.staged_task(s.payload)
                )) as own
            from (%2$s) as s order by s.id, s.seq
        ) as r
        group by r.page order by r.page', pgjq.schema_name(), staged
    )
    loop
        select count(*) into refused
        from pgjq.add_jobs(queue, part.ids, part.payloads, '{}', part.own, part.seqs);
        jobs := jobs + cardinality(part.ids) - refused;
        duplicates := duplicates + refused;
    end loop;
end
$$;
