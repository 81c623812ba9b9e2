-- Which workers are there, and what are they doing?
--
-- alive             heard from within three of its own heartbeat intervals. An idle worker is heard from as often.
-- running           jobs whose leases it holds.
-- next_deadline_in  until the first of those leases lapses.
--
-- Normal: those that you started are alive. One that was stopped is not in the list; one that was killed stays in it
-- for a day.
-- Not so: not alive and running > 0: it died, and its jobs are taken back when their leases lapse (running.sql). None
-- is alive: nothing is being done. Far fewer alive than you started: look at their logs.
--
-- Exact. Records of workers are for people; nothing that holds jobs depends on them.
select w.worker, w.alive, w.queues, w.running, w.started_at, w.last_seen, w.silent_for, w.next_deadline_in
from pgjq.workers as w
order by w.alive desc, w.running desc, w.worker asc;
