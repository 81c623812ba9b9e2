-- Demo workers: insert the workers with these names.
insert into pgjq.worker (name, last_seen)
select w.name, :ends
from unnest(:names::text[]) as w (name)
on conflict (name) do nothing
