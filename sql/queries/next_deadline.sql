-- Seconds until the next processing job's deadline passes.
--
-- Index: job_lease, its first entry.
select extract(epoch from min(j.locked_until) - pgjq.now())::double precision as seconds
from pgjq.job as j
where j.state = 1
