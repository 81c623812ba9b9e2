-- When does each schedule run next, and what did its last tick come to?
--
-- last_outcome  made, triggered and backfilled made a job; skipped, overlapped, paused, too_late, refused and invalid
--               made none, and last_detail says why.
--
-- Normal: every next run is in the future, or null after end_at.
-- Not so: a next run in the past: no worker runs. An error: SQL created it, and its definition is invalid. `pgjq
-- schedules explain NAME` shows the last hundred ticks of one.
--
-- Exact.
select
    s.name, s.queue, coalesce(s.cron, 'every ' || s.every || ' s') as runs, s.timezone, s.paused, s.next_run_at,
    s.next_run_in, s.last_run_at, s.last_job_id, s.last_outcome, s.last_detail, s.error
from pgjq.schedules as s
order by s.next_run_at nulls first, s.name;
