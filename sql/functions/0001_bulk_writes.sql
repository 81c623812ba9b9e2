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

-- Check that these are stages, and that what a login with the role `pgjq_spark` may have put there can be jobs: writers
-- check their rows before, but such a login need not use one.
create function pgjq.check_stages(stages text[]) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    missing text := (
        select n.name from unnest(stages) as n (name) where n.name not in (select s.stage from pgjq.stages() as s) limit 1
    );
    invalid text;
begin
    if missing is not null then
        raise exception 'stage % does not exist: it was dropped as the leftover of a dead write, or never created', missing
        using errcode = 'undefined_table';
    end if;
    if cardinality(stages) > 0 then
        execute format(
            'select left(s.id, 100) from (%s) as s
            where
                char_length(s.id) not between 1 and 512 or char_length(s.singleton_key) not between 1 and 512
                or s.rank = -32768 or not isfinite(s.run_at)
            limit 1', pgjq.staged_rows_query(stages)
        ) into invalid;
    end if;
    if invalid is not null then
        raise exception 'invalid job id or settings: %', invalid
        using errcode = 'check_violation';
    end if;
end
$$;

-- Move the invalid rows of these stages to the quarantine, in an opened write.
create function pgjq.quarantine_staged(queue text, write_id text, batch bigint, stages text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    stage text;
    more bigint;
    rows bigint := 0;
begin
    foreach stage in array stages loop
        execute format(
            'insert into %1$s.quarantine (write_id, batch, queue, id, payload, reason)
            select $1, $2, $3, s.invalid ->> ''id'', s.invalid ->> ''payload'', s.invalid ->> ''reason''
            from %1$s.%2$I as s where s.invalid is not null', pgjq.schema_name(), stage
        ) using write_id, batch, queue;
        get diagnostics more = row_count;
        rows := rows + more;
    end loop;
    if rows > 0 then
        update pgjq.bulk_write as w set quarantined = rows where w.id = write_id and w.batch = quarantine_staged.batch;
    end if;
end
$$;

-- Make a write over one connection: jobs of everything on its stages, all or none, once. It is all that the role
-- `pgjq_spark` may do with stages that it has filled.
create function pgjq.commit_write(
    queue text, write_id text, batch bigint, stages text[], expected bigint,
    out jobs bigint, out duplicates bigint, out made_before boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    write record;
begin
    select w.* into write from pgjq.open_write(queue, write_id, batch) as w;
    jobs := write.jobs;
    duplicates := write.duplicates;
    made_before := jobs is not null;
    if not made_before then
        perform pgjq.check_stages(stages);
        select e.jobs, e.duplicates into jobs, duplicates
        from pgjq.enqueue_staged(queue, write.queue_id, write.at, write.options, stages, expected, false) as e;
        perform pgjq.quarantine_staged(queue, write_id, batch, stages);
    end if;
    perform pgjq.close_write(write_id, batch, stages, jobs, duplicates);
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
