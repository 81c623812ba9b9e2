-- Ended runs, for operators: see 0001_queue_activity.sql.

-- Runs that ended, with the start of their errors: those that did not complete, and the completing ones. The history of
-- an id that was enqueued again is not shown. Index: attempt_ended, done_finished; `pgjq.get_attempts` reads one job.
create view pgjq.attempts as
select
    (select q.name from pgjq.queue as q where q.id = a.queue_id) as queue,
    (select b.id from pgjq.body as b where b.seq = a.seq and b.queue_id = a.queue_id) as id,
    (select b.task from pgjq.body as b where b.seq = a.seq and b.queue_id = a.queue_id) as task,
    a.number, a.worker, a.started_at, a.ended_at, a.ended_at - a.started_at as took, a.outcome,
    pgjq.error_excerpt(a.error, 'type') as error_type, pgjq.error_excerpt(a.error, 'message') as error_message
from pgjq.attempt as a
where not (select b.superseded from pgjq.body as b where b.seq = a.seq and b.queue_id = a.queue_id)
union all
select
    (select q.name from pgjq.queue as q where q.id = d.queue_id),
    (select b.id from pgjq.body as b where b.seq = d.seq and b.queue_id = d.queue_id),
    (select b.task from pgjq.body as b where b.seq = d.seq and b.queue_id = d.queue_id),
    d.lease, (select w.name from pgjq.worker as w where w.id = d.worker_id), d.started_at, d.finished_at,
    d.finished_at - d.started_at, 'completed', null, null
from pgjq.done as d
where d.state = 3 and not d.superseded;
