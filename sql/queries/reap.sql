-- Reap: take back up to :limit jobs whose locked_until has passed, the most overdue first.
--
-- Guarantees
--   * One call, safe for any number of callers: each takes what the others have not locked, and a job that is
--     being settled or renewed at this moment is skipped; it is not stalled, or the next pass finds it.
--   * Found through the jobs, never through a list of workers.
--   * The decision is that of pgjq.lease.judge, and is tested against it: a wish to cancel first, then the stall is
--     counted, and over max_stalled, or without attempts left, the job has failed; else it runs again.
--   * What has failed is copied to its dead letter queue, and the next of its key may run, in the same transaction.
--   * Which workers a job stalled on is written down, and why it stalled last, for whoever looks for a job that takes
--     its workers down.
--   * An attempt that has expired is taken however alive its worker is. :stale_age is extra patience for leases only.
--
-- The statement is in sql/functions/0001_reap.sql.
select r.queue, r.id, r.stalls, r.attempts, r.max_attempts, r.action, r.reason, r.worker, r.payload
from pgjq.reap(:limit::integer, :stale_age::double precision) as r
