-- Leave a failed job in each of many keys, and a job that waits behind it, as claims leave it: blocked.
with made as materialized (
    select nextval('pgjq.job_seq') as seq, pgjq.get_or_create_queue(%(queue)s) as queue_id, 'blocked-' || n / 2 as key, n %% 2 = 0 as failed
    from generate_series(0, 2 * %(keys)s - 1) as n
),

bodies as (
    insert into pgjq.body (seq, created_at, queue_id, id, payload)
    select m.seq, pgjq.now(), m.queue_id, 'job-' || m.seq, '1' from made as m
),

failures as (
    insert into pgjq.done (
        seq, queue_id, finished_at, expires_at, lease, delete_after, rank, attempts, max_attempts, stalled, state, singleton_key
    )
    select m.seq, m.queue_id, pgjq.now(), pgjq.now(), 1, 0, 0, 3, 3, 0, 4, m.key from made as m where m.failed
)

insert into pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key)
select m.seq, m.queue_id, pgjq.now(), true, 0, 3, 3600, 604800, m.key
from made as m
where not m.failed
