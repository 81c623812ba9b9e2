-- Doctor: the oldest snapshots, which keep vacuum from removing dead rows. See the view snapshots.
select
    s.kind, s.name, s.login, s.application, s.state, s.transactions_behind,
    extract(epoch from s.open_for)::double precision as open_for
from pgjq.snapshots as s
order by s.open_for desc nulls last, s.transactions_behind desc nulls last
limit :limit
