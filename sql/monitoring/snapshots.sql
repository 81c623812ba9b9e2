-- What keeps vacuum from removing dead rows: which snapshot is the oldest?
--
-- transactions_behind  transactions that have begun since; the dead rows of all of them stay until this one ends.
-- open_for             how long the session's transaction has been open.
--
-- Normal: thousands behind at most, seconds open.
-- Not so: a session that is idle in transaction: end it (pg_terminate_backend) and set
-- idle_in_transaction_session_timeout. A report that runs for hours: run it on a replica. A replication slot that is
-- inactive: drop it, or let its consumer catch up. Old snapshots slow a queue before other tables: its claims read
-- the dead rows.
--
-- Exact. Other logins' sessions are shown to members of pg_read_all_stats only.
select s.kind, s.name, s.login, s.application, s.state, s.transactions_behind, s.open_for
from pgjq.snapshots as s
order by s.transactions_behind desc nulls last
limit 20;
