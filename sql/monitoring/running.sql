-- Which jobs are being run, by which worker, and how long does each lease still hold?
--
-- lease_left         until the job counts as stalled; heartbeats extend it. Empty: it has neither lease nor expiry.
-- expires_in         until this attempt has taken too long; nothing extends that.
-- worker_silent_for  since the worker's last heartbeat.
-- cancel_requested   cancellation was requested; the next settlement, heartbeat or reaper ends the job as cancelled.
--
-- Normal: lease_left is positive and goes up and down with each heartbeat.
-- Not so: lease_left is negative for longer than a few seconds: no reaper runs (stalled.sql). running_for is long and
-- expires_in is empty: the queue has no expiry, and a handler that hangs hangs for ever.
--
-- Exact; it reads the running jobs only. The 200 whose lease ends first are shown.
select
    r.queue, r.id, r.task, r.worker, r.attempts, r.max_attempts, r.stalled, r.started_at, r.running_for, r.lease_left,
    r.expires_in, r.worker_silent_for, r.cancel_requested
from pgjq.running as r
order by r.lease_left nulls last
limit 200;
