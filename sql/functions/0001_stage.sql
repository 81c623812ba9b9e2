-- Bulk writes: enqueue very many jobs from many tasks at once, all or none. Each task fills its own table, a stage, and
-- one transaction makes jobs of everything on the stages.
--
-- A stage becomes visible when the task that filled it commits, and is dropped by the transaction that empties it. If a
-- task was slow and another took over, the rows are on two stages, and the write names one of them. The other is
-- dropped with it, because a stage's name contains its write; a stage that appears later stays until it is swept.
--
-- One connection keeps one processor busy. So a large write is two concurrent transactions: one adds most of the
-- bodies, the other adds the rest and all the jobs. The first commits a moment before the second. A body alone is no
-- job: every reader of jobs looks for their rows in `job` or `done`. Jobs still appear all or none, in one commit.
--
--   * A writer that dies in that moment leaves bodies behind whose ids look taken. A producer that wants such an id
--     waits for a writer that may be about to commit, which a lock shows, and removes the body if it has no job
--     (`free_id`). If no producer wants the id, the next write removes the body: the bodies' commit lists them in
--     `bulk_body`, and the jobs' commit deletes that row. No write makes jobs of bodies that it finds: a repeated write
--     has the same numbers, and recognises its own bodies by their creation time.
--   * No server detects a deadlock across two connections of one client. So neither transaction waits for an id: if one
--     is taken, or another transaction is adding it, both roll back, and one transaction adds everything instead, in
--     the order of ids.

-- The name of this schema, quoted as SQL needs it.
create function pgjq.schema_name() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select t.typnamespace::regnamespace::text from pg_type as t where t.oid = pg_typeof(null::pgjq.queue)::oid
$$;

-- The existing stages: their names, creation times and writes, all read from the name. No other table has such a name.
create function pgjq.stages() returns table (stage text, made_at timestamptz, write text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select c.relname::text, to_timestamp(split_part(c.relname, '_', 2)::bigint), split_part(c.relname, '_', 3)
    from pg_class as c
    where
        c.relnamespace = pgjq.schema_name()::regnamespace and c.relkind = 'r'
        and c.relname ~ '^stage_[0-9]{1,12}_[0-9a-f]{32}_[0-9a-f]{8}$'
$$;

-- The number of pages of these stages.
create function pgjq.stage_pages(stages text[]) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(sum(pg_relation_size(to_regclass(format('%s.%I', pgjq.schema_name(), s.name)))), 0)::bigint
        / current_setting('block_size')::integer
    from unnest(stages) as s (name)
$$;

-- Create a stage of a write, named by 32 hexadecimal digits, in the transaction that fills it; return its name.
--
-- Unlogged: a crash may lose rows that no caller relies on yet. Numbers are drawn as rows arrive.
create function pgjq.create_stage(write text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    home constant text := pgjq.schema_name();
    stage constant text := format(
        'stage_%s_%s_%s',
        floor(extract(epoch from clock_timestamp()))::bigint, write, left(gen_random_uuid()::text, 8)
    );
begin
    execute format(
        'create unlogged table %s.%I ('
        'seq bigint not null default nextval(%L), id text not null, payload json not null, '
        'rank smallint not null, run_at timestamptz, singleton_key text) with (autovacuum_enabled = false)',
        home, stage, home || '.job_seq'
    );
    return stage;
end
$$;

-- Drop all stages of these writes.
create function pgjq.drop_stages(writes text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    home constant text := pgjq.schema_name();
    stage text;
begin
    for stage in select s.stage from pgjq.stages() as s where s.write = any(writes) loop
        execute format('drop table if exists %s.%I', home, stage);
    end loop;
end
$$;

-- Remove the bodies without jobs that writers have left in a queue, or in any. Bodies of a writer that may be about to
-- commit, which holds the queue's lock, are skipped. Run it in its own transaction, so that no session waits long for
-- the lock or for an id that is free again.
create function pgjq.remove_orphan_bodies(in_queue integer default null) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    found pgjq.bulk_body;
begin
    for found in select w.* from pgjq.bulk_body as w where in_queue is null or w.queue_id = in_queue loop
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

-- Drop unused stages that were created more than `age` seconds ago, and the bodies that dead writers have left; return
-- the number of stages. Stages of other owners are left to them.
create function pgjq.drop_old_stages(age double precision) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
declare
    home constant text := pgjq.schema_name();
    old text;
    swept integer := 0;
begin
    for old in
        select s.stage from pgjq.stages() as s where s.made_at < clock_timestamp() - make_interval(secs => age)
    loop
        begin
            execute format('drop table %s.%I', home, old);
            swept := swept + 1;
        exception when lock_not_available or insufficient_privilege or undefined_table then
            null;
        end;
    end loop;
    begin
        perform pgjq.remove_orphan_bodies();
    exception when lock_not_available or insufficient_privilege then
        null;
    end;
    return swept;
end
$$;

-- Begin a write: return its result if it has been made, else the number of its queue and its time.
--
-- `write_id` and `batch` name it: a write with a known name is not repeated; its first result is returned again. Two
-- writers with the same name come here one after the other. The batches of a stream come in order: an overtaken batch
-- belongs to a stream that restarted under an old name, and would be taken for what that name has written.
create function pgjq.open_write(
    queue text, write_id text, batch bigint,
    out jobs bigint, out duplicates bigint, out queue_id integer, out at timestamptz, out options jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    latest bigint;
begin
    insert into pgjq.bulk_write (id, batch, queue, jobs, duplicates) values (write_id, batch, queue, 0, 0)
    on conflict on constraint bulk_write_pkey do nothing;
    if not found then
        select w.jobs, w.duplicates into jobs, duplicates
        from pgjq.bulk_write as w where w.id = write_id and w.batch = open_write.batch;
    end if;
    latest := (select max(w.batch) from pgjq.bulk_write as w where w.id = write_id);
    if latest > batch then
        raise exception 'batch % of % comes after its batch %: a stream with a new checkpoint needs a new queryId',
            batch, write_id, latest
        using errcode = 'check_violation';
    end if;
    queue_id := pgjq.get_or_create_queue(queue);
    options := (select q.options from pgjq.queue as q where q.id = queue_id);
    at := pgjq.now();
end
$$;

-- End a write: record its result and drop its stages.
create function pgjq.close_write(
    write_id text, batch bigint, stages text[], added bigint, refused bigint
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    update pgjq.bulk_write as w set jobs = added, duplicates = refused
    where w.id = write_id and w.batch = close_write.batch;
    delete from pgjq.bulk_body as b using pgjq.bulk_write as w
    where
        b.id = write_id and b.batch = close_write.batch and b.created_at = w.at
        and w.id = write_id and w.batch = close_write.batch;
    -- Of a stream, only the last batch can be repeated.
    delete from pgjq.bulk_write as w where w.id = write_id and w.batch < close_write.batch - 100;
    perform pgjq.drop_stages(array(select distinct split_part(s.name, '_', 3) from unnest(stages) as s (name)));
end
$$;

-- A query for all rows of these stages, or for one of `parts` parts of each: some of its pages.
create function pgjq.staged_rows_query(stages text[], part integer default 0, parts integer default 1) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select string_agg(
        format(
            'select * from %s.%I where ctid >= ''(%s,0)'' and ctid < ''(%s,0)''',
            pgjq.schema_name(), s.name, s.pages * part / parts, s.pages * (part + 1) / parts
        ), ' union all '
    )
    from (select n.name, pgjq.stage_pages(array[n.name]) as pages from unnest(stages) as n (name)) as s
$$;

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

-- Make jobs of all rows on these stages, in an opened write; return how many were added, and how many were not, because
-- their ids or slots were taken. With `apart`, `add_bodies` adds all the bodies.
--
-- It does what `pgjq.add_jobs` does, for more rows than arrays can hold. As there, rows are added in the order of ids,
-- so that two callers with ids in common cannot deadlock. An id whose job has ended, and all jobs that a policy may
-- refuse, go through that function.
create function pgjq.enqueue_staged(
    queue text, here integer, at timestamptz, inherited jsonb, stages text[], expected bigint, apart boolean,
    out jobs bigint, out duplicates bigint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
as $$
#variable_conflict use_variable
declare
    home constant text := pgjq.schema_name();
    staged text := pgjq.staged_rows_query(stages);
    part record;
    answer bigint;
begin
    jobs := 0;
    duplicates := 0;

    if (here & 7) = 5 and expected > 0 then
        execute format('select count(*) from (%s) as s where s.singleton_key is null', staged) into answer;
        if answer > 0 then
            raise exception 'every job needs a singleton_key: queue % keeps each key in strict order', queue
            using errcode = 'check_violation';
        end if;
    end if;

    if (here & 7) not in (1, 3, 4) and expected > 0 then
        if not apart then
            execute pgjq.insert_bodies_statement(staged) || ' on conflict (queue_id, id) where not superseded do nothing'
            using at, here, inherited;
            get diagnostics jobs = row_count;
        end if;
        execute format(
            'insert into %1$s.job (
                seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key
            )
            select
                s.seq, $2, coalesce(s.run_at, $1), coalesce(s.run_at, $1) <= $1, s.rank, $3, 3600, $4, s.singleton_key
            from (%2$s) as s
            where $5 or exists (
                select from %1$s.body as b where b.seq = s.seq and b.queue_id = $2 and b.created_at = $1
            )', home, staged
        ) using
            at, here, coalesce((inherited ->> 'retry_limit')::smallint + 1, 3),
            coalesce((inherited ->> 'delete_after_seconds')::real, 604800), apart or jobs = expected;
        get diagnostics jobs = row_count;
        if jobs > 0 then
            perform pgjq.wake(queue);
        end if;
        if jobs > 0 and pgjq.has_subscribers() then
            execute format(
                'select sum(%1$s.publish(p.events)) from (
                    select array_agg(%1$s.event(''queued'', $1, s.id, 0, task => %1$s.staged_task(s.payload)) order by s.seq) as events
                    from (%2$s) as s
                    where $3 or exists (
                        select from %1$s.body as b where b.seq = s.seq and b.queue_id = $2 and b.created_at = $4
                    )
                    group by s.seq / 1000
                ) as p', home, staged
            ) into answer using queue, here, apart or jobs = expected, at;
        end if;
    end if;

    if jobs < expected and not apart and (here & 7) not in (1, 3, 4) then
        -- Most rows with a taken id are duplicates at first sight, and are only counted.
        execute format(
            'create temporary table rest on commit drop as
            select s.*, coalesce(
                exists (select from %1$s.job as j where j.seq = b.seq and j.queue_id = $1)
                or exists (
                    select from %1$s.done as d
                    where d.seq = b.seq and d.queue_id = $1 and d.state = 3 and d.expires_at > $2
                ), false
            ) as held
            from (%2$s) as s
            left join %1$s.body as b on b.queue_id = $1 and b.id = s.id and not b.superseded
            where b.seq is distinct from s.seq or b.created_at <> $2', home, staged
        ) using here, at;
        execute 'delete from pg_temp.rest where held';
        get diagnostics duplicates = row_count;
        staged := 'select * from pg_temp.rest';
    end if;

    if jobs + duplicates < expected and not apart then
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
            group by r.page order by r.page', home, staged
        )
        loop
            select count(*) into answer
            from pgjq.add_jobs(queue, part.ids, part.payloads, '{}', part.own, part.seqs);
            jobs := jobs + cardinality(part.ids) - answer;
            duplicates := duplicates + answer;
        end loop;
    end if;

    if jobs + duplicates <> expected then
        raise exception '% rows were staged, and % are there', expected, jobs + duplicates;
    end if;
    if apart then
        -- Until the commit, the bodies are about to become jobs: see `pgjq.free_id`.
        perform pg_advisory_xact_lock_shared(hashtext('pgjq.write'), here);
    end if;
end
$$;
