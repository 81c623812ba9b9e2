-- Fill a queue with jobs as enqueueing leaves them, a million in seconds.
with made as materialized (
    select
        nextval('pgjq.job_seq') as seq, pgjq.get_or_create_queue(%(queue)s) as queue_id,
        pgjq.now() + make_interval(secs => %(delay)s) as run_at
    from generate_series(1, %(count)s)
),

bodies as (
    insert into pgjq.body (seq, created_at, queue_id, id, payload)
    select m.seq, pgjq.now(), m.queue_id, 'job-' || m.seq, convert_to(rpad('["order 1', 245, '.') || '"]', 'UTF8')
    from made as m
)

insert into pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after)
select m.seq, m.queue_id, m.run_at, %(delay)s <= 0, -%(priority)s, 3, 3600, 604800
from made as m
