-- Promote: make jobs claimable whose time has come.
--
-- Jobs that wait for run_at are not in the index that claims walk, so a hundred thousand of them cost a claim nothing.
-- Any number of callers may promote at once; each takes what the others have not locked. With nothing due this reads a
-- page or two.
--
-- Index: job_waiting, from the past to now; then the primary key, once for each.
with due as materialized (
    select w.seq, w.queue_id from pgjq.job as w
    where not w.ready and w.state <> 1 and w.run_at <= pgjq.now()
    order by w.run_at
    limit 1000 for update skip locked
)

update pgjq.job as j
set ready = true
from unnest(array(select due.seq from due), array(select due.queue_id from due)) as d (seq, queue_id)
where j.seq = d.seq and j.queue_id = d.queue_id
