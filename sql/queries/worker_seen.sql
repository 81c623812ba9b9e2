-- Worker seen: register a worker, or record that it is alive. For monitoring: leases do not depend on it.
with known as (
    insert into pgjq.worker (name) values (:worker)
    on conflict (name) do update set last_seen = pgjq.now(), prune_at = excluded.prune_at
    returning id
)

insert into pgjq.registration (id, worker_id, queues, heartbeat)
select :registration, k.id, :queues, :heartbeat from known as k
on conflict (id) do update set last_seen = pgjq.now()
