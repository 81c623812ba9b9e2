-- Which runs did not complete in the last hour, by queue, outcome and worker?
--
-- outcome  failed: the handler raised. stalled: the worker went silent. expired: the attempt took too long. released:
--          the worker gave the run back. snoozed: the handler put it off. cancelled: as asked. lease_lost: an operator
--          took it away.
--
-- Normal: failed runs of errors that you expect; released ones when workers stop; snoozed ones if handlers snooze.
-- Not so: stalled runs of one worker: its process or machine dies. Of all workers: a job kills them; its id is in
-- for_example. Expired runs: raise expire_in_seconds, or find out what the handler waits for.
--
-- Exact; it reads the runs of this hour. `pgjq status` shows all runs of one job.
select
    a.queue, a.outcome, a.worker, count(*) as runs, count(distinct a.id) as jobs, max(a.ended_at) as last_at,
    max(a.id) as for_example, max(a.error_type) as error_type
from pgjq.attempts as a
where a.ended_at > pgjq.now() - interval '1 hour' and a.outcome <> 'completed'
group by a.queue, a.outcome, a.worker
order by runs desc
limit 100;
