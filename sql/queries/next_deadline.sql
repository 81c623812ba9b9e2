-- Seconds until the earliest deadline of a processing job.
--
-- Index: job_lease, its first entry.
select extract(epoch from min(j.locked_until) - pgjq.now())::double precision as seconds
from pgjq.job as j
where j.state = 1
