-- Seen: record that a worker is alive, and give it its number. For people: nothing that holds jobs depends on it.
insert into pgjq.worker (name, queues) values (:worker, :queues)
on conflict (name) do update
    set
        last_seen = pgjq.now(),
        queues = case when excluded.queues = '{}' then worker.queues else excluded.queues end
returning id
