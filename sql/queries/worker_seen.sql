-- Worker seen: register a worker, or record that it is alive. For monitoring: leases do not depend on it. So it waits
-- only briefly for a row that another transaction has locked.
with limited as materialized (
    select set_config('lock_timeout', '100ms', true) as lock_timeout
),

known as (
    insert into pgjq.worker (name)
    select :worker from limited
    on conflict (name) do update set last_seen = pgjq.now(), prune_at = excluded.prune_at
    returning id
)

insert into pgjq.registration (id, worker_id, queues, heartbeat)
select :registration, k.id, :queues, :heartbeat from known as k
on conflict (id) do update set last_seen = pgjq.now()
