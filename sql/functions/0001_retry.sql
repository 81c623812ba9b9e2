-- Retry ended jobs.

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
as $$
#variable_conflict use_column
declare
    is_locked constant boolean := pgjq.lock_queue(retry_jobs.queue);
    ended pgjq.done;
    named record;
    retried text[] := '{}';
    tasks text[] := '{}';
begin
    for named in
        select b.id, b.seq, b.queue_id, b.task
        from pgjq.queue as q
        inner join pgjq.body as b on b.queue_id = q.id
        where q.name = retry_jobs.queue and b.id = any(retry_jobs.ids) and not b.superseded
        order by b.id
    loop
        select d.* into ended from pgjq.done as d
        where d.seq = named.seq and d.queue_id = named.queue_id and d.state in (4, 5) and not d.superseded
        for update;
        continue when not found;
        insert into pgjq.job (
            queue_id, seq, lease, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key
        )
        values (
            named.queue_id, named.seq, ended.lease, pgjq.now(), true, ended.rank, ended.max_attempts,
            extract(epoch from ended.expires_at - ended.finished_at), ended.delete_after,
            ended.singleton_key
        )
        on conflict do nothing;
        if not found then
            return query select named.id, 'taken';
            continue;
        end if;
        delete from pgjq.done as d where d.seq = named.seq and d.queue_id = named.queue_id;
        update pgjq.progress as p set error = null, stalled_on = '{}'
        where p.seq = named.seq and p.queue_id = named.queue_id;
        perform pgjq.unblock_keys(array[named.queue_id], array[ended.singleton_key]);
        retried := retried || named.id;
        tasks := tasks || named.task;
        return query select named.id, 'queued';
    end loop;
    if cardinality(retried) > 0 then
        perform pgjq.wake(retry_jobs.queue);
        if pgjq.has_subscribers() then
            perform pgjq.publish(array_agg(pgjq.event('queued', retry_jobs.queue, r.id, 0, task => r.task)))
            from unnest(retried, tasks) as r (id, task);
        end if;
    end if;
end
$$;

-- Retry one job, and return it as this transaction leaves it: no worker can claim it before the commit. No row if the
-- job does not exist; `became` is null if it could not be retried.
create function pgjq.retry_job(queue text, job_id text) returns table (became text, job pgjq.jobs)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    became := (select r.became from pgjq.retry_jobs(queue, array[job_id]) as r);
    return query select became, g from pgjq.get_jobs(queue, array[job_id]) as g;
end
$$;
