-- Make a past of %(count)s jobs, each with a payload of about 285 bytes, a result, and one in twenty with an error.
with place as (select pgjq.get_or_create_queue('bench') as queue_id),

worker as (
    insert into pgjq.worker (name) select 'worker-' || n from generate_series(1, 8) as n
    on conflict (name) do update set last_seen = excluded.last_seen returning id
),

bodies as (
    insert into pgjq.body (seq, created_at, queue_id, id, payload)
    select
        n, now() - interval '1 day' + n * interval '10 ms', place.queue_id, md5(n::text),
        convert_to(json_build_object('order', n, 'customer', md5(n::text), 'note', repeat('x', 200))::text, 'UTF8')
    from place, generate_series(1, %(count)s) as n
)

insert into pgjq.done (
    seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, worker_id, delete_after, rank, attempts,
    max_attempts, stalled, state, result, error
)
select
    n, now() - interval '1 day' + n * interval '10 ms' + interval '3 s', now(),
    now() - interval '1 day' + n * interval '10 ms' + interval '1 s', now() + interval '7 days', place.queue_id, 1,
    (select min(id) from worker) + n %% 8, 604800, 0, 1, 3, 0, case when n %% 20 = 0 then 4 else 3 end,
    case when n %% 20 > 0 then convert_to(n::text, 'UTF8') end,
    case when n %% 20 = 0 then '{"type": "Boom", "message": "it broke", "traceback": ""}' end
from place, generate_series(1, %(count)s) as n
