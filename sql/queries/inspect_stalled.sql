-- Inspect stalled jobs: running ones past their deadline, the most overdue first. Index: job_lease.
select s.queue, s.id, s.worker, extract(epoch from s.overdue)::double precision as overdue, s.reason
from pgjq.stalled as s
order by s.overdue desc
limit :limit
