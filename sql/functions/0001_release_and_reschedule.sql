-- Steer jobs by hand: release running ones, and change when and how soon waiting ones run.

-- Take running jobs away from their workers, without counting their attempts; return how many.
--
-- Their runs are recorded as `lease_lost`. A job whose cancellation was requested ends as cancelled; one whose policy
-- has no slot for it fails. The lock of a job's row decides a race with its worker: the one that comes later finds that
-- the run has ended. Index: body_id, then the primary key.
create function pgjq.release_running(queue text, ids text[]) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    running record;
    settled record;
begin
    select
        array_agg(k.queue_id) as queue_ids, array_agg(k.seq) as seqs, array_agg(k.lease) as leases,
        count(*)::integer as jobs
    into running
    from (
        select j.queue_id, j.seq, j.lease
        from pgjq.queue as q
        inner join pgjq.body as b on b.queue_id = q.id and b.id = any(release_running.ids) and not b.superseded
        inner join pgjq.job as j on j.seq = b.seq and j.queue_id = b.queue_id
        where q.name = release_running.queue and j.state + 0 = 1
        for update of j
    ) as k;
    if running.jobs = 0 then
        return 0;
    end if;
    settled := pgjq.settle(
        running.queue_ids, running.seqs, running.leases, array_fill(0::smallint, array[running.jobs]), null, null, null,
        array_fill('lease_lost'::text, array[running.jobs])
    );
    return cardinality(settled.settled_seqs);
end
$$;

-- Change when a waiting job may run, and its priority; null leaves either as it is. Returns the job as it is then, no
-- row if it does not exist; a job in another state is left alone.
--
-- A blocked job that becomes due is ready like a new one: the next claim blocks it again if its key is busy. If the job
-- blocked others of its key and is due later now, the next of them is unblocked. Index: body_id, then the primary key.
create function pgjq.reschedule_job(queue text, job_id text, run_at timestamptz, priority smallint)
returns setof pgjq.jobs
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    changed record;
begin
    update pgjq.job as j
    set
        rank = coalesce(-reschedule_job.priority, j.rank), run_at = coalesce(reschedule_job.run_at, j.run_at),
        ready = case when reschedule_job.run_at is null then j.ready else reschedule_job.run_at <= pgjq.now() end,
        blocked = j.blocked and reschedule_job.run_at is null
    from pgjq.body as b
    where
        b.queue_id = (select q.id from pgjq.queue as q where q.name = reschedule_job.queue)
        and b.id = reschedule_job.job_id and not b.superseded
        and j.seq = b.seq and j.queue_id = b.queue_id and j.state + 0 <> 1
    returning j.queue_id, j.singleton_key into changed;
    if found then
        perform pgjq.unblock_keys(array[changed.queue_id], array[changed.singleton_key]);
        perform pgjq.wake(reschedule_job.queue);
    end if;
    return query select g.* from pgjq.get_jobs(reschedule_job.queue, array[reschedule_job.job_id]) as g;
end
$$;
