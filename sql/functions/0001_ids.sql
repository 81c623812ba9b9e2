-- Ids of jobs: whether one is taken, and freeing it.

-- Remove a body if it has no job. It waits for a writer that may be about to commit one: after the lock, one snapshot
-- shows the job in one of the two tables, or there is none. A snapshot as old as the caller's transaction cannot tell.
create function pgjq.remove_orphan_body(in_queue integer, holder bigint) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'  -- any login can hold the lock
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'could not serialize access due to a write of many jobs'
        using errcode = 'serialization_failure';
    end if;
    begin
        perform pg_advisory_xact_lock(hashtext('pgjq.write'), in_queue);
        raise exception using errcode = 'PJ001';
    exception
        when sqlstate 'PJ001' then
            null; -- The end of the block releases the lock: no writer waits for the rest of the caller's transaction.
        when lock_not_available then
            raise exception 'an id may be taken by a write of many jobs that has been open for 10 s'
            using errcode = 'lock_not_available', hint = 'pg_locks shows who holds its advisory lock';
    end;
    delete from pgjq.body as b
    where
        b.seq = holder and b.queue_id = in_queue
        and not exists (select from pgjq.job as j where j.seq = holder and j.queue_id = in_queue)
        and not exists (select from pgjq.done as d where d.seq = holder and d.queue_id = in_queue);
end
$$;

-- Check a taken id, and free it if its job is over. Returns no row if the id is free now, else why it is not.
--
-- Finishing moves a job from `job` to `done` in one commit. This reads `job` first and `done` in a later snapshot, so
-- it sees one of the two. If it sees neither, `retry` requeued the job in between, and the next round sees it; or a
-- bulk write is about to commit it, or died before (sql/functions/0001_bulk_writes.sql).
-- Concurrent callers that free the same id wait for the lock of its `done` row, and all but one find it superseded; so
-- does a `retry` that comes too late. `done` is locked before `body` here, as in delete and prune.
create function pgjq.free_id(in_queue integer, wanted text, enqueue_failed boolean)
returns table (status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
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
            -- In strict order a failed job keeps its id, and blocks its key, until it is retried or deleted.
            if ended.state = 4 and (
                pgjq.is_strict(in_queue) or (ended.expires_at > pgjq.now() and not enqueue_failed)
            ) then
                return query select 'duplicate', ended.state, null::bytea;
                return;
            end if;
            update pgjq.done as d set superseded = true
            where d.seq = holder and d.queue_id = in_queue and not d.superseded;
            if found then
                update pgjq.body as b set superseded = true where b.seq = holder and b.queue_id = in_queue;
                return;
            end if;
        else
            perform pgjq.remove_orphan_body(in_queue, holder);
        end if;
    end loop;
end
$$;
