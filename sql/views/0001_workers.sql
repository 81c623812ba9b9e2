-- Views of workers and leaders for operators: see 0001_queue_activity.sql.

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

served as (
    select n.worker_id, array_agg(n.name order by n.started_at, n.place) as queues
    from (
        select k.worker_id, q.name, min(k.started_at) as started_at, min(q.place) as place
        from ranked as k cross join unnest(k.queues) with ordinality as q (name, place)
        where k.rank = 1
        group by k.worker_id, q.name
    ) as n
    group by n.worker_id
),

running as (
    select j.worker_id, count(*) as jobs, min(j.locked_until) as first_deadline
    from pgjq.job as j where j.state = 1 group by j.worker_id
)

select
    w.name as worker, s.alive,
    coalesce(v.queues, '{}') as queues,
    coalesce(r.jobs, 0) as running, s.started_at, s.last_seen, pgjq.now() - s.last_seen as silent_for,
    r.first_deadline - pgjq.now() as next_deadline_in
from shown as s
inner join pgjq.worker as w on s.worker_id = w.id
left join served as v on s.worker_id = v.worker_id
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
