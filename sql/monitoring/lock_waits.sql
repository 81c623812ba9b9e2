-- Which sessions wait for a lock, and which session blocks each?
--
-- One row for each session that waits for a lock in this database and each session that it waits for. lock_type:
-- transactionid is a row that another transaction has changed and not committed, relation a whole table, advisory one
-- of pgjq's own locks: enqueueing waits for a transaction that creates or deletes the queue.
--
-- Normal: no rows, or different ones each time.
-- Not so: the same blocked_by again and again, idle in transaction: its program forgot to commit;
-- pg_terminate_backend ends it. An ALTER TABLE or a migration that waits: every session behind it waits, too; cancel
-- it and run it in a quieter hour.
--
-- Exact. Texts and times of other logins' sessions are shown to members of pg_read_all_stats only.
select
    w.pid, w.application, w.lock_type, w.mode, w.table_name, w.waiting_for, w.blocked_by, w.blocker, w.blocker_state,
    w.blocker_open_for, w.query, w.blocker_query
from pgjq.lock_waits as w
order by w.waiting_for desc nulls last
limit 50;
