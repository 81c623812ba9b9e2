-- Fill a queue with jobs of some keys, one after the other in turn, or all of a key together.
with made as materialized (
    select
        nextval('pgjq.job_seq') as seq, pgjq.get_or_create_queue(%(queue)s) as queue_id,
        'key-' || case when %(together)s then n * %(keys)s / %(count)s else n %% %(keys)s end as key
    from generate_series(0, %(count)s - 1) as n
),

bodies as (
    insert into pgjq.body (seq, created_at, queue_id, id, payload)
    select m.seq, pgjq.now(), m.queue_id, 'job-' || m.seq, convert_to(rpad('["order 1', 245, '.') || '"]', 'UTF8')
    from made as m
)

insert into pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key)
select m.seq, m.queue_id, pgjq.now(), true, 0, 3, 3600, 604800, m.key
from made as m
