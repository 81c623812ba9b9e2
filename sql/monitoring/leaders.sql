-- Which session leads the maintenance and the reapers?
--
-- maintenance  one of the workers: it prunes old records and counts queues. reaper: one of the reapers that were
--              started with leader election; workers reap for themselves as well.
-- last_proof   when it last proved leadership; a few seconds ago.
--
-- Normal: maintenance has a pid while a worker runs; reaper has one if you run reapers with leader election.
-- Not so: no pid for longer than half a minute: no candidate could be elected. Behind a transaction pooler none can;
-- give workers and reapers a direct connection.
--
-- Exact. Login, address and times of other logins' sessions are shown to members of pg_read_all_stats only.
select l.role, l.pid, l.login, l.client_addr, l.session_since, l.last_proof
from pgjq.leaders as l
order by l.role;
