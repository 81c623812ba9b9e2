-- Totals for metrics, and the number of slots that a queue needs.

-- Add to a total of each queue and task; beyond 10,000 rows, new tasks count as "other".
create function pgjq.add_totals(queue_ids integer[], tasks text[], outcomes text[], counts bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    is_full boolean := (select count(*) >= 10000 from (select from pgjq.total as t limit 10000) as few);
begin
    insert into pgjq.total as t (queue_id, task, outcome, jobs)
    select a.queue_id, a.task, a.outcome, sum(a.jobs)
    from (
        select
            n.queue_id, n.outcome, n.jobs,
            case
                when not is_full or exists (
                    select from pgjq.total as o
                    where o.queue_id = n.queue_id and o.task = n.task and o.outcome = n.outcome
                ) then n.task
                else 'other'
            end as task
        from unnest(queue_ids, tasks, outcomes, counts) as n (queue_id, task, outcome, jobs)
    ) as a
    group by a.queue_id, a.task, a.outcome
    order by a.queue_id, a.task, a.outcome
    on conflict (queue_id, task, outcome) do update set jobs = t.jobs + excluded.jobs;
end
$$;

-- Count stalls of jobs: one for each time that a queue is named.
create function pgjq.add_stalls(queues text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgjq.add_totals(
            array_agg(q.id), array_fill(''::text, array[count(*)::integer]),
            array_fill('stalled'::text, array[count(*)::integer]), array_agg(s.jobs)
        )
    from (select r.queue, count(*) as jobs from unnest(queues) as r (queue) group by r.queue) as s
    inner join pgjq.queue as q on s.queue = q.name;
end
$$;

-- Add the endings since the last call to the totals: of an hour at the most, and not those of the last 15 seconds, as
-- their transactions may not have committed. Only an exporter calls it, so that databases without one pay nothing.
-- Index: done_finished.
create function pgjq.record_totals() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    since timestamptz;
    until timestamptz := pgjq.now() - interval '15 seconds';
begin
    select greatest(c.upto, until - interval '1 hour') into since from pgjq.counted as c for update skip locked;
    if since is null or since >= until then
        return;
    end if;
    perform pgjq.add_totals(array_agg(e.queue_id), array_agg(e.task), array_agg(e.outcome), array_agg(e.jobs))
    from pgjq.endings_between(since, until) as e
    having count(*) > 0;
    update pgjq.counted set upto = until;
    delete from pgjq.total as t where not exists (select from pgjq.queue as q where q.id = t.queue_id);
end
$$;

-- Count the endings of a time by queue, task and outcome.
create function pgjq.endings_between(since timestamptz, until timestamptz) returns table (
    queue_id integer, task text, outcome text, jobs bigint
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select
        d.queue_id, coalesce(b.task, ''), (array['completed', 'failed', 'cancelled'])[d.state - 2], count(*)
    from pgjq.done as d
    left join pgjq.body as b on d.seq = b.seq and d.queue_id = b.queue_id
    where d.finished_at > since and d.finished_at <= until
    group by 1, 2, 3;
end
$$;

-- The totals of all queues, up to now. Index: done_finished, for what ended since the last count.
create function pgjq.totals() returns table (queue text, task text, outcome text, jobs bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select q.name, a.task, a.outcome, sum(a.jobs)::bigint
    from (
        select t.queue_id, t.task, t.outcome, t.jobs from pgjq.total as t
        union all
        select e.queue_id, e.task, e.outcome, e.jobs
        from pgjq.counted as c
        cross join pgjq.endings_between(greatest(c.upto, pgjq.now() - interval '1 hour'), 'infinity') as e
    ) as a
    inner join pgjq.queue as q on a.queue_id = q.id
    group by q.name, a.task, a.outcome;
end
$$;

-- The mean run time in seconds of a queue's jobs: of those that ended within five minutes, else an hour, else a day; of
-- 10,000 at the most. Null without any. Index: done_finished.
create function pgjq.mean_run_seconds(queue_id integer) returns double precision
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    mean double precision;
    span interval;
begin
    foreach span in array array[interval '5 minutes', interval '1 hour', interval '1 day'] loop
        select avg(extract(epoch from r.finished_at - r.started_at))::double precision into mean
        from (
            select d.finished_at, d.started_at from pgjq.done as d
            where
                d.finished_at > pgjq.now() - span and d.queue_id = mean_run_seconds.queue_id
                and d.started_at is not null and d.state in (3, 4)
            limit 10000
        ) as r;
        exit when mean is not null;
    end loop;
    return mean;
end
$$;

-- The slots of workers that a queue needs so that the jobs that are ready now start within a time: ready jobs times
-- their mean run time, divided by the time. 0 if no job is ready or running, else at least 1. For autoscalers, such as
-- KEDA.
--
-- Index: job_ready, job_waiting and job_lease, and done_finished for the run times.
create function pgjq.scale(queue text, target_seconds double precision) returns integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    number integer := (select q.id from pgjq.queue as q where q.name = scale.queue);
    ready bigint;
    is_running boolean;
begin
    if not coalesce(target_seconds > 0 and target_seconds < 'infinity', false) then
        raise exception 'target_seconds must be above 0, not %', target_seconds using errcode = 'invalid_parameter_value';
    end if;
    select count(*) into ready from pgjq.job as j where j.ready and j.queue_id = number;
    ready := ready + (
        select count(*) from pgjq.job as j
        where not j.ready and not j.blocked and j.state <> 1 and j.run_at <= pgjq.now() and j.queue_id = number
    );
    is_running := exists (select from pgjq.job as j where j.state = 1 and j.queue_id = number);
    if ready = 0 and not is_running then
        return 0;
    end if;
    return least(
        greatest(1, ceil(ready * coalesce(pgjq.mean_run_seconds(number), 0) / target_seconds)), 1000000
    )::integer;
end
$$;
