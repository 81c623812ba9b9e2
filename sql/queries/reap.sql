-- Reap: take back up to :limit jobs whose locked_until has passed, the most overdue first.
--
-- Guarantees
--   * Any number of callers may run this at once: each takes the jobs that the others have not locked. A job that is
--     being settled or renewed is skipped; it is not stalled, or the next sweep finds it.
--   * Stalled jobs are found through the jobs, never through a list of workers.
--   * The decision is that of pgjq.lease.judge, and is tested against it: a cancel request comes first; then the stall
--     is counted, and over max_stalled, or without attempts left, the job has failed; else it runs again.
--   * In the same transaction, a failed job is copied to its dead letter queue, and the next job of its key is
--     unblocked.
--   * The workers that a job stalled on, and the reason of its last stall, are recorded, so that an operator can find a
--     job that kills its workers.
--   * An expired attempt is taken back even if its worker is alive. :stale_age delays only lapsed leases.
--
-- The statement is in sql/functions/0001_reap.sql.
select
    r.queue, r.id, r.stalls, r.attempts, r.max_attempts, r.action, r.reason, r.worker, r.payload,
    r.task
from pgjq.reap(:limit::integer, :stale_age::double precision) as r
