-- Which workers exist, and what are they doing?
--
-- alive             seen within three of its own heartbeat intervals. An idle worker also sends heartbeats.
-- running           jobs whose leases it holds.
-- next_deadline_in  until the first of those leases lapses.
--
-- Normal: the workers that you started are alive. A stopped worker is not in the list; a killed one stays in it for a
-- day.
-- Not so: not alive and running > 0: it died, and reapers take its jobs back when their leases lapse (running.sql).
-- None is alive: no job runs. Far fewer alive than you started: read their logs.
--
-- Exact. Worker records are for monitoring; leases do not depend on them.
select w.worker, w.alive, w.queues, w.running, w.started_at, w.last_seen, w.silent_for, w.next_deadline_in
from pgjq.workers as w
order by w.alive desc, w.running desc, w.worker asc;
