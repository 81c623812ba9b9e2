-- Demo workers: as many as were named, each of the queue that its name begins with.
insert into pgjq.worker (name, started_at, last_seen, queues)
select w.name, :begins, :ends, array[split_part(w.name, '-', 1)]
from unnest(:names::text[]) as w (name)
on conflict (name) do nothing
