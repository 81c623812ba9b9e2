-- Which jobs have stalled and have not been taken back yet?
--
-- overdue         since the deadline passed. reason is lease (its worker went silent) or expired (it took too long).
-- stalled_before  how often it had stalled before: a job that stalls repeatedly may kill its workers.
--
-- Normal: no rows; or a few that are gone within the reapers' interval, 5 seconds unless you changed it.
-- Not so: rows stay. Then no reaper runs: start a worker or `pgjq reaper`, and check that one leads (leaders.sql).
-- The same id comes back: read its error and the workers that it stalled on (`pgjq status`), then cancel it.
--
-- Exact; it reads these jobs only. The 200 most overdue ones are shown.
select
    s.queue, s.id, s.task, s.worker, s.attempts, s.max_attempts, s.stalled_before, s.overdue, s.reason,
    s.worker_silent_for
from pgjq.stalled as s
order by s.overdue desc
limit 200;
