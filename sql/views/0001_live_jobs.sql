-- Views of jobs for operators: see 0001_queue_activity.sql.

-- The type or the message of an error, from its JSON; at most 200 characters.
create function pgjq.error_excerpt(error text, part text) returns text
language sql immutable parallel safe
return left(substring(error, '"' || part || '"\s*:\s*"((?:[^"\\]|\\.)*)"'), 200);

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
    where pgjq.is_strict(d.queue_id) and d.state = 4 and not d.superseded
    union all
    select
        j.queue_id, j.seq, j.singleton_key, 'failing', j.started_at,
        (select p.error from pgjq.progress as p where p.seq = j.seq and p.queue_id = j.queue_id)
    from pgjq.job as j
    -- As an expression, so that the planner starts from the failing jobs and not from every job in strict order.
    where pgjq.is_strict(j.queue_id + 0) and j.state - 2 = 0
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
                l.queue_id = k.queue_id and coalesce(l.singleton_key, '') = k.singleton_key
                and pgjq.is_strict(l.queue_id) and l.seq <> k.seq
            order by l.seq limit 100
        ) as few
    ) as waiting,
    pgjq.error_excerpt(k.error, 'type') as error_type, pgjq.error_excerpt(k.error, 'message') as error_message
from blocker as k;
