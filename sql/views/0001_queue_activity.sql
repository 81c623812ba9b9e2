-- Views for operators and dashboards; sql/monitoring has a file for each question, which explains how to read the
-- answer.
--
-- No view shows a payload, a result or a checkpoint. Of an error they show the type and the beginning of the message.
-- All of them stay cheap with millions of jobs: counts that are not cheap come from the last count of the maintenance
-- leader, with its time. Names and ids are looked up row by row, in subqueries: the planner does not know how few rows
-- a view reads and would read every body instead, and with a limit the lookups of rows that are not shown are skipped.

-- How many jobs of some queues could be claimed now: exact below `most`. Index: job_ready, from its head; in a
-- function, because the planner assumes that every queue is short, and would read all of it.
create function pgjq.count_ready(queue_ids integer[], most integer) returns table (queue_id integer, jobs bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select wanted.id, few.jobs
    from unnest(queue_ids) as wanted (id)
    cross join lateral (
        select count(*) as jobs
        from (
            select from pgjq.job as j
            where j.ready and j.queue_id = wanted.id
            order by j.queue_id, j.rank, j.seq limit most
        ) as head
    ) as few;
end
$$;

-- How many jobs wait in each queue, and for how long. Index: job_ready, job_lease.
create view pgjq.backlog as
with running as (
    select j.queue_id, count(*) as jobs from pgjq.job as j where j.state = 1 group by j.queue_id
)

select
    q.name as queue, q.paused,
    -- Exact below 1,000; 1,000 means 1,000 or more.
    c.jobs as ready,
    pgjq.now() - oldest.since as oldest_age,
    coalesce(r.jobs, 0) as processing,
    (q.stats ->> 'ready')::bigint as counted_ready,
    (q.stats ->> 'deferred')::bigint as counted_deferred,
    (q.stats ->> 'failing')::bigint as counted_failing,
    make_interval(secs => (q.stats ->> 'oldest_ready_age')::double precision) as counted_oldest_age,
    (q.stats ->> 'counted_at')::timestamptz as counted_at
from pgjq.queue as q
left join running as r on q.id = r.queue_id
left join pgjq.count_ready(array(select a.id from pgjq.queue as a), 1000) as c on q.id = c.queue_id
cross join lateral (
    -- The first job of each priority: each step to the next priority is one index probe.
    with recursive head as (
        (
            select j.rank, j.run_at from pgjq.job as j
            where j.ready and j.queue_id = q.id
            order by j.queue_id, j.rank, j.seq limit 1
        )
        union all
        select n.rank, n.run_at
        from head as h
        cross join lateral (
            select j.rank, j.run_at from pgjq.job as j
            where j.ready and j.queue_id = q.id and j.rank > h.rank
            order by j.queue_id, j.rank, j.seq limit 1
        ) as n
    )

    select min(h.run_at) as since from head as h
) as oldest;

-- Jobs that ended in the last hour, by queue and minute, and how long they took. Index: done_finished, and the primary
-- key of body.
create view pgjq.throughput as
with ended as materialized (  -- else each percentile would look up the job's age by itself
    select
        d.queue_id, d.finished_at, d.state, d.finished_at - d.started_at as ran,
        d.started_at - (
            select b.created_at from pgjq.body as b where b.seq = d.seq and b.queue_id = d.queue_id
        ) as waited
    from pgjq.done as d
    -- With both bounds the planner assumes a short range, also when it has no statistics of the table.
    where d.finished_at > pgjq.now() - interval '1 hour' and d.finished_at <= pgjq.now()
)

select
    date_trunc('minute', e.finished_at) as minute, q.name as queue,
    count(*) filter (where e.state = 3) as completed,
    count(*) filter (where e.state = 4) as failed,
    count(*) filter (where e.state = 5) as cancelled,
    percentile_cont(0.5) within group (order by e.waited) as waited_p50,
    percentile_cont(0.95) within group (order by e.waited) as waited_p95,
    percentile_cont(0.99) within group (order by e.waited) as waited_p99,
    percentile_cont(0.5) within group (order by e.ran) as ran_p50,
    percentile_cont(0.95) within group (order by e.ran) as ran_p95,
    percentile_cont(0.99) within group (order by e.ran) as ran_p99
from ended as e
inner join pgjq.queue as q on e.queue_id = q.id
group by date_trunc('minute', e.finished_at), q.name;
