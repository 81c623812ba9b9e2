-- Set jobs with invalid values aside.
--
-- The functions for producers refuse such a job; rows written with the owner's rights are not checked. One such row
-- fails every claim of its queue, or all reaping, or all pruning. The client that gets such an error calls
-- `pgjq.fail_invalid_jobs` and repeats its statement, so the statements themselves check nothing.

-- Run the computations of claims, reapers, settlements and pruning on a job; return the error, or null.
create function pgjq.find_row_error(job pgjq.job, options jsonb) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform
        pgjq.now() + make_interval(secs => (options ->> 'heartbeat_seconds')::double precision),
        (options ->> 'heartbeat_seconds')::double precision::real,
        pgjq.now() + make_interval(secs => (options ->> 'expire_in_seconds')::double precision),
        pgjq.now() - make_interval(secs => (options ->> 'retention_seconds')::double precision),
        pgjq.now() + make_interval(secs => pgjq.retry_delay(options, 1)),
        pgjq.now() + make_interval(secs => pgjq.retry_delay(options, 16)),
        (options ->> 'delete_after_seconds')::real, options - '{}'::text[],
        job.lease + 1, (job.attempts + 1)::smallint, (job.stalled + 1)::smallint;
    return null;
exception when data_exception then
    return sqlerrm;
end
$$;

-- End jobs of these queues, or of all, as failed if their values are invalid; return how many.
--
-- The error in their records says why. They are not copied to a dead letter queue, where they would fail statements
-- again. A running job is left to its worker until its lease has lapsed. Reads all live jobs: for the rare case only.
create function pgjq.fail_invalid_jobs(queues text[] default null) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    suspect record;
    fault text;
    count integer := 0;
begin
    for suspect in
        select j as job, b.id, b.options, q.name as queue
        from pgjq.job as j
        inner join pgjq.body as b on b.seq = j.seq and b.queue_id = j.queue_id
        inner join pgjq.queue as q on q.id = j.queue_id
        where
            (queues is null or q.name = any(queues)) and (j.state <> 1 or j.locked_until <= pgjq.now())
            and (
                not pgjq.are_valid_options(b.options)
                or j.attempts = 32767 or j.stalled = 32767 or j.lease = 2147483647
            )
        order by j.seq
        for update of j skip locked
    loop
        fault := pgjq.find_row_error(suspect.job, suspect.options);
        continue when fault is null;
        perform pgjq.fail_job(suspect.job, suspect.queue, suspect.id, json_build_object(
            'type', 'InvalidJob', 'message', 'set aside, because its row cannot be computed with: ' || fault,
            'traceback', null
        )::text);
        count := count + 1;
    end loop;
    return count;
end
$$;

-- End a job whose row is locked as failed, notify waiters and subscribers, and unblock the next job of its key.
create function pgjq.fail_job(job pgjq.job, queue text, id text, error text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from pgjq.job as j where j.seq = job.seq and j.queue_id = job.queue_id;
    insert into pgjq.done (
        queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank, attempts,
        max_attempts, stalled, singleton_key, state, error
    )
    values (
        job.queue_id, job.seq, job.lease, job.started_at, pgjq.now(), pgjq.now() + pgjq.bounded_interval(job.result_ttl),
        case when job.delete_after > 0 and (job.queue_id & 7) <> 5 then pgjq.now() + pgjq.bounded_interval(job.delete_after) end,
        job.worker_id, job.delete_after, job.rank, job.attempts, job.max_attempts, job.stalled, job.singleton_key, 4,
        fail_job.error
    );
    perform pgjq.unblock_keys(array[job.queue_id], array[job.singleton_key]);
    if job.awaited then
        perform pgjq.notify_waiters(array[pgjq.end_notification(queue, id, 'failed')]);
    end if;
    if pgjq.has_subscribers() then
        perform pgjq.publish(array[pgjq.event('failed', queue, id, job.attempts, task => (
            select b.task from pgjq.body as b where b.seq = job.seq and b.queue_id = job.queue_id
        ))]);
    end if;
end
$$;
