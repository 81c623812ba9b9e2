-- Workers that were seen once, all of them within a day.
with names as (
    insert into pgjq.worker (name)
    select 'worker-' || n from generate_series(1, 10000) as n
    returning id, name
)

insert into pgjq.registration (id, worker_id, queues, last_seen, heartbeat)
select n.name, n.id, '{q0}', now() - random() * interval '20 hours', 10 from names as n
