-- Schedules: when each runs next, what its last tick came to, and what is wrong with it.
--
-- A next run in the past: no worker has ticked it. `error`: it was created in SQL, and its definition is invalid.
-- last_outcome: made, triggered and backfilled made a job; skipped, overlapped, paused, too_late, refused and invalid
-- made none, and last_detail says why. `pgjq schedules explain NAME` shows the last hundred ticks of one.
select
    s.name, s.queue, coalesce(s.cron, 'every ' || s.every || ' s') as runs, s.timezone, s.paused, s.next_run_at,
    s.next_run_in, s.last_run_at, s.last_job_id, s.last_outcome, s.last_detail, s.error
from pgjq.schedules as s
order by s.next_run_at nulls first, s.name;
