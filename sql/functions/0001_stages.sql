-- Stages: the tables that the tasks of a bulk write fill.

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
-- Unlogged: a crash may lose rows that no caller relies on yet. Numbers are drawn as rows arrive. A row with `invalid`
-- is not a job: it has the id, the payload and the reason for the quarantine.
create function pgjq.create_stage(write text) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    own_schema constant text := pgjq.schema_name();
    stage constant text := format(
        'stage_%s_%s_%s',
        floor(extract(epoch from clock_timestamp()))::bigint, write, left(gen_random_uuid()::text, 8)
    );
begin
    execute format(
        'create unlogged table %s.%I ('
        'seq bigint not null default nextval(%L), id text not null, payload json not null, '
        'rank smallint not null, run_at timestamptz, singleton_key text, invalid json) with (autovacuum_enabled = false)',
        own_schema, stage, own_schema || '.job_seq'
    );
    -- With roles this function runs as the schema's owner, who then owns the stage. The caller may add rows to it, but
    -- neither read it nor choose the numbers of jobs.
    if session_user <> current_user then
        execute format(
            'grant insert (id, payload, rank, run_at, singleton_key, invalid) on %s.%I to %I',
            own_schema, stage, session_user
        );
    end if;
    return stage;
end
$$;

-- Drop all stages of these writes.
create function pgjq.drop_stages(writes text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    own_schema constant text := pgjq.schema_name();
    stage text;
begin
    for stage in select s.stage from pgjq.stages() as s where s.write = any(writes) loop
        execute format('drop table if exists %s.%I', own_schema, stage);
    end loop;
end
$$;

-- Drop unused stages that were created more than `age` seconds ago, by default three days, and the bodies that dead
-- writers have left; return the number of stages. Stages of other owners are left to them. Delete rows that have been
-- in quarantine for thirty days, and state changes that were recorded seven days ago.
create function pgjq.drop_old_stages(age double precision default 259200) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
declare
    own_schema constant text := pgjq.schema_name();
    old text;
    swept integer := 0;
begin
    for old in
        select s.stage from pgjq.stages() as s where s.made_at < clock_timestamp() - make_interval(secs => age)
    loop
        begin
            execute format('drop table %s.%I', own_schema, old);
            swept := swept + 1;
        exception when lock_not_available or insufficient_privilege or undefined_table then
            null;
        end;
    end loop;
    begin
        delete from pgjq.quarantine as q where q.at < pgjq.now() - interval '30 days';
        delete from pgjq.job_event as e where e.at < pgjq.now() - interval '7 days';
        perform pgjq.remove_orphan_bodies();
    exception when lock_not_available or insufficient_privilege then
        null;
    end;
    return swept;
end
$$;

-- A query for all valid rows of these stages, or for those of one of `parts` parts of each: some of its pages.
create function pgjq.staged_rows_query(stages text[], part integer default 0, parts integer default 1) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select string_agg(
        format(
            'select * from %s.%I where ctid >= ''(%s,0)'' and ctid < ''(%s,0)'' and invalid is null',
            pgjq.schema_name(), s.name, s.pages * part / parts, s.pages * (part + 1) / parts
        ), ' union all '
    )
    from (select n.name, pgjq.stage_pages(array[n.name]) as pages from unnest(stages) as n (name)) as s
$$;
