-- Add ended jobs to a queue's history, in the order in which they ended.
with made as materialized (
    select nextval('pgjq.job_seq') as seq, pgjq.get_or_create_queue(%(queue)s) as queue_id
    from generate_series(1, %(count)s)
),

bodies as (
    insert into pgjq.body (seq, created_at, queue_id, id, payload)
    select m.seq, pgjq.now(), m.queue_id, 'job-' || m.seq, convert_to(rpad('["order 1', 245, '.') || '"]', 'UTF8')
    from made as m
)

insert into pgjq.done (
    seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, delete_after, rank, attempts, max_attempts,
    stalled, state, result
)
select
    m.seq, pgjq.now(), pgjq.now() + interval '1 hour', pgjq.now(), pgjq.now() + interval '7 days', m.queue_id, 1,
    604800, 0, 1, 3, 0, 3, '1'
from made as m
