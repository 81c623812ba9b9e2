-- Settle: end runs, or release jobs, each under the lease that its worker holds.
--
-- Guarantees
--   * Fenced: a row whose lease has moved on, or that is not processing, is left alone and not returned. So a worker
--     that slept past its lease cannot overwrite its successor. Completing races with reaping: the transaction that
--     locks the row first wins, and the other finds nothing.
--   * A job leaves `job` and enters `done` in one commit: no reader sees it in both or in neither.
--   * The statement waits a second and a half for a row that another transaction has locked; then the whole batch is an
--     error: the settler sends the outcomes one by one, and that of the locked row again later. No other outcome waits
--     for it. The limit is over PostgreSQL's default deadlock_timeout, so that a deadlock is reported as one, and the
--     statement repeated at once.
--   * A cancel request that came before the handler's end ends the job as cancelled, whatever the outcome was.
--
-- :states are 3 completed, 4 failed, 5 cancelled, 2 failing, 0 released without counting the attempt; null: all are
-- completed. :outcomes are those of `pgjq.Attempt`. The caller sorts the rows by queue and seq, so that two batches
-- lock in the same order. The answer is null if every job ended as requested. The statements are in
-- sql/functions/0001_settle.sql.
select s.settled_seqs, s.settled_leases, s.settled_states
from
    pgjq.settle(
        :queue_ids::text::integer[], :seqs::text::bigint[], :leases::text::integer[], :states::text::smallint[],
        :results::text::bytea[], :errors::text::text[], :delays::text::double precision[],
        :outcomes::text::text[], '1500ms'
    ) as s
