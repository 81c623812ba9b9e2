-- Cancel, delete, retry and prune jobs: when a job leaves, the next job of its key is unblocked.

-- Cancel jobs that are not running: their records stay as cancelled, their ids are free at once. Returns their ids.
--
-- The lock of the job's row decides a race with a claim: if the claim was first, the state is checked again after the
-- wait, nothing matches, and the caller reads the job's new state.
-- Index: body_id, then the primary key.
create function pgjq.cancel_jobs(queue text, ids text[]) returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    gone record;
begin
    with wanted as materialized (
        select b.queue_id, b.seq, b.id, b.task
        from pgjq.body as b
        inner join pgjq.queue as q on b.queue_id = q.id
        where q.name = cancel_jobs.queue and b.id = any(cancel_jobs.ids) and not b.superseded
    ),

    withdrawn as (
        delete from pgjq.job as j
        using wanted as w
        where j.seq = w.seq and j.queue_id = w.queue_id and j.state <> 1
        returning j.*, w.id, w.task
    ),

    history as (
        insert into pgjq.done (
            queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank, attempts,
            max_attempts, stalled, singleton_key, state
        )
        select
            w.queue_id, w.seq, w.lease, w.started_at, pgjq.now(), pgjq.now() + pgjq.bounded_interval(w.result_ttl),
            case when w.delete_after > 0 then pgjq.now() + pgjq.bounded_interval(w.delete_after) end, w.worker_id,
            w.delete_after, w.rank, w.attempts, w.max_attempts, w.stalled, w.singleton_key, 5
        from withdrawn as w
    )

    select
        array_agg(w.queue_id) as queue_ids, array_agg(w.id) as ids, array_agg(w.attempts) as attempts,
        array_agg(w.singleton_key) as keys, array_agg(w.task) as tasks,
        array_agg(pgjq.end_notification(cancel_jobs.queue, w.id, 'cancelled')) filter (where w.awaited) as endings
    into gone from withdrawn as w;
    if gone.ids is null then
        return;
    end if;
    perform pgjq.unblock_keys(gone.queue_ids, gone.keys);
    if pgjq.has_subscribers() then
        perform pgjq.publish(
            array_agg(pgjq.event('cancelled', cancel_jobs.queue, g.id, g.attempts, task => g.task))
        )
        from unnest(gone.ids, gone.attempts, gone.tasks) as g (id, attempts, task);
    end if;
    if gone.endings is not null then
        perform pgjq.notify_waiters(gone.endings);
    end if;
    return query select g.id from unnest(gone.ids) as g (id);
end
$$;

-- Delete jobs that are not running, and free their ids; return the ids that were deleted.
--
-- The row in `job` is deleted first: if a claim was faster, nothing is deleted, and the rest of the job stays, too.
-- Index: body_id, then the primary keys.
create function pgjq.delete_jobs(queue text, ids text[]) returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    gone record;
begin
    with wanted as materialized (
        select b.queue_id, b.seq, b.id
        from pgjq.body as b
        inner join pgjq.queue as q on b.queue_id = q.id
        where q.name = delete_jobs.queue and b.id = any(delete_jobs.ids) and not b.superseded
    ),

    live as (
        delete from pgjq.job as j
        using wanted as w
        where j.seq = w.seq and j.queue_id = w.queue_id and j.state <> 1
        returning j.queue_id, j.seq, j.singleton_key, j.awaited, w.id
    ),

    ended as (
        delete from pgjq.done as d
        using wanted as w
        where d.seq = w.seq and d.queue_id = w.queue_id
        returning d.queue_id, d.seq, d.singleton_key, false as awaited, w.id
    ),

    both_of_them as (
        select l.* from live as l
        union all
        select e.* from ended as e
    )

    select
        array_agg(g.queue_id) as queue_ids, array_agg(g.seq) as seqs, array_agg(g.singleton_key) as keys,
        array_agg(pgjq.end_notification(delete_jobs.queue, g.id, 'deleted')) filter (where g.awaited) as endings
    into gone from both_of_them as g;

    delete from pgjq.progress as p
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where p.seq = g.seq and p.queue_id = g.queue_id;
    return query
    delete from pgjq.body as b
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where b.seq = g.seq and b.queue_id = g.queue_id
    returning b.id;
    perform pgjq.unblock_keys(gone.queue_ids, gone.keys);
    if gone.endings is not null then
        perform pgjq.notify_waiters(gone.endings);
    end if;
end
$$;

-- Requeue failed or cancelled jobs in their own places, with all their attempts; return for each `queued`, or `taken`
-- if the policy has no slot for it now. Jobs in other states are left out.
--
-- The lease number continues: a worker of an earlier run that resumes late still has an old number. An id that is
-- enqueued again at the same time is not requeued as well: that enqueue marks the record as superseded, under the row
-- lock that this waits for. The queue cannot be deleted meanwhile: requeued jobs would be left without a queue.
-- Index: body_id, then the primary key of done.
create function pgjq.retry_jobs(queue text, ids text[]) returns table (id text, became text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    entered constant boolean := pgjq.lock_queue(retry_jobs.queue);
    record_of pgjq.done;
    named record;
    revived text[] := '{}';
    tasks text[] := '{}';
begin
    for named in
        select b.id, b.seq, b.queue_id, b.task
        from pgjq.queue as q
        inner join pgjq.body as b on b.queue_id = q.id
        where q.name = retry_jobs.queue and b.id = any(retry_jobs.ids) and not b.superseded
        order by b.id
    loop
        select d.* into record_of from pgjq.done as d
        where d.seq = named.seq and d.queue_id = named.queue_id and d.state in (4, 5) and not d.superseded
        for update;
        continue when not found;
        insert into pgjq.job (
            queue_id, seq, lease, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key
        )
        values (
            named.queue_id, named.seq, record_of.lease, pgjq.now(), true, record_of.rank, record_of.max_attempts,
            extract(epoch from record_of.expires_at - record_of.finished_at), record_of.delete_after,
            record_of.singleton_key
        )
        on conflict do nothing;
        if not found then
            return query select named.id, 'taken';
            continue;
        end if;
        delete from pgjq.done as d where d.seq = named.seq and d.queue_id = named.queue_id;
        update pgjq.progress as p set error = null, stalled_on = '{}'
        where p.seq = named.seq and p.queue_id = named.queue_id;
        perform pgjq.unblock_keys(array[named.queue_id], array[record_of.singleton_key]);
        revived := revived || named.id;
        tasks := tasks || named.task;
        return query select named.id, 'queued';
    end loop;
    if cardinality(revived) > 0 then
        perform pgjq.wake(retry_jobs.queue);
        if pgjq.has_subscribers() then
            perform pgjq.publish(array_agg(pgjq.event('queued', retry_jobs.queue, r.id, 0, task => r.task)))
            from unnest(revived, tasks) as r (id, task);
        end if;
    end if;
end
$$;

-- Prune up to `limit` records of ended jobs whose retention and result_ttl have passed: until then the result can be
-- read and the id is taken. Returns how many. Batches are small, and no row that workers use is locked.
--
-- Index: done_delete, from the past to now; then the primary keys, once for each.
create function pgjq.prune_ended("limit" integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    gone record;
begin
    with old as materialized (
        select past.queue_id, past.seq from pgjq.done as past
        where past.delete_at <= pgjq.now() and (past.superseded or past.state = 5 or past.expires_at <= pgjq.now())
        order by past.delete_at
        limit prune_ended."limit" for update skip locked
    )

    select array_agg(old.queue_id) as queue_ids, array_agg(old.seq) as seqs into gone from old;

    delete from pgjq.done as d
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where d.seq = g.seq and d.queue_id = g.queue_id;
    delete from pgjq.progress as p
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where p.seq = g.seq and p.queue_id = g.queue_id;
    delete from pgjq.body as b
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where b.seq = g.seq and b.queue_id = g.queue_id;
    return coalesce(cardinality(gone.seqs), 0);
end
$$;

-- Prune up to `limit` jobs that have waited longer than their retention without ending; return how many.
--
-- Running jobs are left alone, and so is a failing job in strict order: age never unblocks a key. The retention is the
-- job's own, or 14 days as in `pgjq/options.py`, and never the caller's: the right to prune is no right to delete.
-- Index: the primary key of job.
create function pgjq.prune_waiting("limit" integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    gone record;
begin
    with old as materialized (
        select j.queue_id, j.seq
        from pgjq.job as j
        inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id
        where
            j.state <> 1 and not ((j.queue_id & 7) = 5 and j.state = 2)
            and greatest(b.created_at, j.run_at)
            <= pgjq.now() - make_interval(secs => coalesce(
                (b.options ->> 'retention_seconds')::double precision, 1209600
            ))
        order by j.seq
        limit prune_waiting."limit" for update of j skip locked
    ),

    live as (
        delete from pgjq.job as j
        using unnest(array(select old.queue_id from old), array(select old.seq from old)) as d (queue_id, seq)
        where j.seq = d.seq and j.queue_id = d.queue_id
        returning j.queue_id, j.seq, j.singleton_key, j.awaited
    )

    select
        array_agg(l.queue_id) as queue_ids, array_agg(l.seq) as seqs, array_agg(l.singleton_key) as keys,
        array_agg(l.queue_id) filter (where l.awaited) as awaited_queue_ids,
        array_agg(l.seq) filter (where l.awaited) as awaited_seqs
    into gone from live as l;

    if gone.awaited_seqs is not null then
        perform pgjq.notify_waiters_of_jobs(gone.awaited_queue_ids, gone.awaited_seqs, null);
    end if;
    delete from pgjq.progress as p
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where p.seq = g.seq and p.queue_id = g.queue_id;
    delete from pgjq.body as b
    using unnest(gone.queue_ids, gone.seqs) as g (queue_id, seq)
    where b.seq = g.seq and b.queue_id = g.queue_id;
    perform pgjq.unblock_keys(gone.queue_ids, gone.keys);
    return coalesce(cardinality(gone.seqs), 0);
end
$$;
