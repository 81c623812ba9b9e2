-- Look for work without taking any.

-- Seconds until a job of these queues can be claimed; 0 or less: now; null: there is none.
--
-- At most a quarter of a second while a writer has not committed: its commit may not notify. Writers are looked for
-- before jobs: a writer that commits in between is seen by the second look.
--
-- Index: job_ready and job_waiting, the first entry of each. Each statement can use one index only, so the plans are
-- kept (ADR 20).
create function pgjq.seconds_until_work(queues text[]) returns double precision
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    has_writers constant boolean := pgjq.has_uncommitted_jobs(queues);
    queue text;
    wanted_id integer;
begin
    foreach queue in array queues loop
        select q.id into wanted_id from pgjq.queue as q where q.name = queue and not q.paused;
        if wanted_id is not null and exists (
            select from pgjq.job as j where j.ready and j.queue_id = wanted_id order by j.queue_id, j.rank, j.seq
        ) then
            return 0;
        end if;
    end loop;
    return least(
        (
            select extract(epoch from min(w.run_at) - pgjq.now())::double precision from pgjq.job as w
            where not w.ready and not w.blocked and w.state <> 1
        ),
        case when has_writers then 0.25 end
    );
end
$$;
