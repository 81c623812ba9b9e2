-- Views for operators and dashboards; sql/monitoring has a file for each question, which explains how to read the
-- answer.
--
-- No view shows a payload, a result or a checkpoint. Of an error they show the type and the beginning of the message.
-- All of them stay cheap with millions of jobs: counts that are not cheap come from the last count of the maintenance
-- leader, with its time. Names and ids are looked up row by row, in subqueries: the planner does not know how few rows
-- a view reads and would read every body instead, and with a limit the lookups of rows that are not shown are skipped.

-- The type or the message of an error, from its JSON; at most 200 characters.
create function pgjq.error_excerpt(error text, part text) returns text
language sql immutable parallel safe
return left(substring(error, '"' || part || '"\s*:\s*"((?:[^"\\]|\\.)*)"'), 200);

-- How many jobs of a queue could be claimed now: exact below `most`. Index: job_ready, from its head; in a function,
-- because the planner assumes that every queue is short, and would read all of it.
create function pgjq.count_ready(queue_id integer, most integer) returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
    return (
        select count(*)
        from (
            select from pgjq.job as j
            where j.ready and j.queue_id = count_ready.queue_id
            order by j.queue_id, j.rank, j.seq limit most
        ) as few
    );
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
    pgjq.count_ready(q.id, 1000) as ready,
    pgjq.now() - oldest.since as oldest_age,
    coalesce(r.jobs, 0) as processing,
    (q.stats ->> 'ready')::bigint as counted_ready,
    (q.stats ->> 'deferred')::bigint as counted_deferred,
    (q.stats ->> 'failing')::bigint as counted_failing,
    make_interval(secs => (q.stats ->> 'oldest_ready_age')::double precision) as counted_oldest_age,
    (q.stats ->> 'counted_at')::timestamptz as counted_at
from pgjq.queue as q
left join running as r on q.id = r.queue_id
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

-- Jobs that are being run, their workers, and how long their leases still hold. Index: job_lease.
create view pgjq.running as
select
    (select q.name from pgjq.queue as q where q.id = j.queue_id) as queue,
    (select b.id from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as id,
    (select b.task from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as task,
    w.name as worker, j.attempts, j.max_attempts, j.stalled, j.started_at, pgjq.now() - j.started_at as running_for,
    j.locked_until - pgjq.now() as lease_left, j.expire_at - pgjq.now() as expires_in,
    pgjq.now() - w.last_seen as worker_silent_for, j.cancel_requested
from pgjq.job as j
left join pgjq.worker as w on j.worker_id = w.id
where j.state = 1;

-- Jobs whose worker went silent, or that took too long, and that no reaper has taken back yet. Index: job_lease, from
-- the past to now.
create view pgjq.stalled as
select
    (select q.name from pgjq.queue as q where q.id = j.queue_id) as queue,
    (select b.id from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as id,
    (select b.task from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as task,
    w.name as worker, j.attempts, j.max_attempts, j.stalled as stalled_before, pgjq.now() - j.locked_until as overdue,
    case when j.expire_at <= pgjq.now() then 'expired' else 'lease' end as reason,
    pgjq.now() - w.last_seen as worker_silent_for
from pgjq.job as j
left join pgjq.worker as w on j.worker_id = w.id
where j.state = 1 and j.locked_until <= pgjq.now();

-- Jobs that failed and will run again, and why they failed. Index: job_failing.
create view pgjq.failing as
select
    (select q.name from pgjq.queue as q where q.id = j.queue_id) as queue,
    (select b.id from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as id,
    (select b.task from pgjq.body as b where b.seq = j.seq and b.queue_id = j.queue_id) as task,
    j.singleton_key, j.attempts, j.max_attempts, j.stalled, j.run_at, j.run_at - pgjq.now() as runs_in, (
        select pgjq.error_excerpt(p.error, 'type') from pgjq.progress as p
        where p.seq = j.seq and p.queue_id = j.queue_id
    ) as error_type, (
        select pgjq.error_excerpt(p.error, 'message') from pgjq.progress as p
        where p.seq = j.seq and p.queue_id = j.queue_id
    ) as error_message
from pgjq.job as j
where j.state - 2 = 0;

-- Jobs that failed for good, and why. Index: done_failed.
create view pgjq.failed as
select
    (select q.name from pgjq.queue as q where q.id = d.queue_id) as queue,
    (select b.id from pgjq.body as b where b.seq = d.seq and b.queue_id = d.queue_id) as id,
    (select b.task from pgjq.body as b where b.seq = d.seq and b.queue_id = d.queue_id) as task,
    d.singleton_key, d.attempts, d.max_attempts, d.stalled, d.finished_at,
    (select w.name from pgjq.worker as w where w.id = d.worker_id) as worker,
    pgjq.error_excerpt(d.error, 'type') as error_type, pgjq.error_excerpt(d.error, 'message') as error_message
from pgjq.done as d
where d.state - 4 = 0 and not d.superseded;

-- Keys in strict order that are blocked by a job that failed or is failing, and how many jobs wait behind it: exact
-- below 100. Index: done_blocked, job_failing; for each key job_key_order.
create view pgjq.blocked_keys as
with blocker as (
    select d.queue_id, d.seq, d.singleton_key, 'failed' as state, d.finished_at as since, d.error
    from pgjq.done as d
    where (d.queue_id & 7) = 5 and d.state = 4 and not d.superseded
    union all
    select
        j.queue_id, j.seq, j.singleton_key, 'failing', j.started_at,
        (select p.error from pgjq.progress as p where p.seq = j.seq and p.queue_id = j.queue_id)
    from pgjq.job as j
    -- As an expression, so that the planner starts from the failing jobs and not from every job in strict order.
    where (j.queue_id + 0 & 7) = 5 and j.state - 2 = 0
)

select
    (select q.name from pgjq.queue as q where q.id = k.queue_id) as queue,
    k.singleton_key, k.state,
    (select b.id from pgjq.body as b where b.seq = k.seq and b.queue_id = k.queue_id) as id,
    k.since, pgjq.now() - k.since as blocked_for, (
        select count(*)
        from (
            select from pgjq.job as l
            where
                l.queue_id = k.queue_id and coalesce(l.singleton_key, '') = k.singleton_key and (l.queue_id & 7) = 5
                and l.seq <> k.seq
            order by l.seq limit 100
        ) as few
    ) as waiting,
    pgjq.error_excerpt(k.error, 'type') as error_type, pgjq.error_excerpt(k.error, 'message') as error_message
from blocker as k;

-- Workers that run, and workers that went silent within a day without stopping. A worker is alive until it has been
-- silent for three of its own heartbeat intervals. A worker with several registrations is described by the live ones,
-- else by the latest. Index: job_lease, for the jobs that they run.
create view pgjq.workers as
with registered as (
    select
        r.worker_id, r.queues, r.started_at, r.last_seen,
        r.last_seen + make_interval(secs => 3 * r.heartbeat) > pgjq.now() as alive
    from pgjq.registration as r
    where r.last_seen + make_interval(secs => 3 * r.heartbeat) > pgjq.now() - interval '1 day'
),

ranked as (
    select
        r.worker_id, r.queues, r.started_at, r.last_seen, r.alive,
        rank() over (partition by r.worker_id order by r.alive desc, case when not r.alive then r.last_seen end desc)
            as rank
    from registered as r
),

shown as (
    select r.worker_id, bool_or(r.alive) as alive, min(r.started_at) as started_at, max(r.last_seen) as last_seen
    from ranked as r where r.rank = 1 group by r.worker_id
),

running as (
    select j.worker_id, count(*) as jobs, min(j.locked_until) as first_deadline
    from pgjq.job as j where j.state = 1 group by j.worker_id
)

select
    w.name as worker, s.alive,
    array(
        select q.name from ranked as k cross join unnest(k.queues) with ordinality as q (name, ordinality)
        where k.worker_id = s.worker_id and k.rank = 1
        group by q.name order by min(k.started_at), min(ordinality)
    ) as queues,
    coalesce(r.jobs, 0) as running, s.started_at, s.last_seen, pgjq.now() - s.last_seen as silent_for,
    r.first_deadline - pgjq.now() as next_deadline_in
from shown as s
inner join pgjq.worker as w on s.worker_id = w.id
left join running as r on s.worker_id = r.worker_id;

-- The leader of each role: the session that holds its advisory lock.
create view pgjq.leaders as
select
    r.role, l.pid, a.usename as login, a.client_addr, a.backend_start as session_since, a.state_change as last_proof
from (values ('reaper'), ('maintenance')) as r (role)
left join pg_locks as l
    on
        l.locktype = 'advisory' and l.granted and l.mode = 'ExclusiveLock' and l.objsubid = 2
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
        and l.classid::bigint = hashtext('pgjq.leader')::bigint & 4294967295
        and l.objid::bigint = hashtext(r.role)::bigint & 4294967295
left join pg_stat_activity as a on l.pid = a.pid;

-- The state of each table: its size, its dead rows, its last vacuum.
create view pgjq.table_health as
select
    c.relname as table_name, pg_table_size(c.oid) as table_bytes, pg_indexes_size(c.oid) as index_bytes,
    s.n_live_tup as live_rows, s.n_dead_tup as dead_rows,
    (pg_table_size(c.oid) + pg_indexes_size(c.oid)) / greatest(s.n_live_tup, 1) as bytes_per_live_row,
    greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at, s.vacuum_count + s.autovacuum_count as vacuums,
    greatest(s.last_analyze, s.last_autoanalyze) as analysed_at, age(c.relfrozenxid) as frozen_age,
    v.phase as vacuum_now
from pg_class as c
inner join pg_stat_all_tables as s on c.oid = s.relid
left join pg_stat_progress_vacuum as v on c.oid = v.relid
where
    c.relkind = 'r'
    and c.relnamespace = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'));

-- What keeps vacuum from removing dead rows, the oldest first: a session, a prepared transaction or a replication slot.
create view pgjq.snapshots as
select
    'session' as kind, a.pid::text as name, a.usename as login, a.application_name as application, a.state,
    age(a.backend_xmin) as transactions_behind, clock_timestamp() - a.xact_start as open_for
from pg_stat_activity as a
where a.backend_xmin is not null and a.pid <> pg_backend_pid()
union all
select 'prepared transaction', p.gid, p.owner, null, null, age(p.transaction), clock_timestamp() - p.prepared
from pg_prepared_xacts as p
where p.database = current_database()
union all
select
    'replication slot', r.slot_name, null, null, case when r.active then 'active' else 'inactive' end,
    greatest(age(r.xmin), age(r.catalog_xmin)), null
from pg_replication_slots as r
where r.xmin is not null or r.catalog_xmin is not null;

-- Sessions that wait for a lock in this database, and the sessions that block them.
create view pgjq.waits as
select
    l.pid, w.application_name as application, l.locktype as lock_type, l.mode, l.relation::regclass as table_name,
    clock_timestamp() - l.waitstart as waiting_for, b.pid as blocked_by, h.application_name as blocker,
    h.state as blocker_state, clock_timestamp() - h.xact_start as blocker_open_for, left(w.query, 80) as query,
    left(h.query, 80) as blocker_query
from pg_locks as l
cross join lateral unnest(pg_blocking_pids(l.pid)) as b (pid)
left join pg_stat_activity as w on l.pid = w.pid
left join pg_stat_activity as h on b.pid = h.pid
where
    not l.granted
    and (
        l.database is null or l.database = (select d.oid from pg_database as d where d.datname = current_database())
    );
