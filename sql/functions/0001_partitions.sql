-- Partitions of a queue.

-- The name of this schema, quoted as SQL needs it.
create function pgjq.schema_name() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select t.typnamespace::regnamespace::text from pg_type as t where t.oid = pg_typeof(null::pgjq.queue)::oid
$$;

-- Create partitions for a queue. Indexes and constraints come from the parent tables; the storage parameters, and the
-- columns without statistics, are those of the default partition.
create function pgjq.create_partitions(queue_id integer) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    own_schema constant text := pgjq.schema_name();
    jobs constant text := format('%s.%I', own_schema, 'job_' || -queue_id);
    parent text;
    no_statistics text;
begin
    foreach parent in array array['body', 'job', 'done', 'progress', 'attempt'] loop
        execute format(
            'create table %s.%I partition of %s.%I for values in (%s)',
            own_schema, parent || '_' || -queue_id, own_schema, parent, queue_id
        );
    end loop;
    execute format('alter table %s set (%s)', jobs, (
        select array_to_string(c.reloptions, ', ') from pg_class as c where c.oid = regclass('pgjq.job_default')
    ));
    for no_statistics in
        select a.attname from pg_attribute as a
        where a.attrelid = regclass('pgjq.job_default') and a.attnum > 0 and a.attstattarget = 0
    loop
        execute format('alter table %s alter column %I set statistics 0', jobs, no_statistics);
    end loop;
    if pgjq.is_strict(queue_id) then
        execute format('alter table %s add constraint job_needs_key check (singleton_key is not null)', jobs);
    end if;
end
$$;
