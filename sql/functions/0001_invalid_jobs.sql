-- Fail jobs with invalid values.
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
as $$
declare
    suspect record;
    fault text;
    count integer := 0;
begin
    for suspect in
        select j as job, b.options
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
        perform pgjq.end_jobs(
            array[(suspect.job).queue_id], array[(suspect.job).seq], array[(suspect.job).lease], array[4::smallint],
            null, array[json_build_object(
                'type', 'InvalidJob', 'message', 'failed, because its row holds values out of bounds: ' || fault,
                'traceback', null
            )::text], (suspect.job).state = 1, false
        );
        count := count + 1;
    end loop;
    return count;
end
$$;
