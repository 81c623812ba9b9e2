-- Worker number: the number that jobs name a worker by; a name gets one the first time.
insert into pgjq.worker (name) values (:worker)
on conflict (name) do update set last_seen = pgjq.now(), prune_at = excluded.prune_at
returning id
