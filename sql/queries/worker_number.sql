-- Worker number: the number of a worker in jobs; the first call assigns it.
insert into pgjq.worker (name) values (:worker)
on conflict (name) do update set last_seen = pgjq.now(), prune_at = excluded.prune_at
returning id
