-- Settle: end runs, or give jobs back, each under the lease that its worker holds.
--
-- Guarantees
--   * Fenced: a row whose lease has moved on, or that nobody runs any more, is left alone and not returned. So a
--     worker that slept past its lease cannot overwrite its successor, and completing races with reaping: whoever
--     locks the row first wins, and the other finds nothing.
--   * A job leaves `job` and enters `done` in one commit: no reader sees it in both or in neither.
--   * A row that another transaction has locked is waited for a second, and then the whole batch is an error: the
--     settler offers the outcomes one by one, and that of the locked row again later. No other outcome waits for it.
--   * A wish to cancel that came before the handler's end ends the job as cancelled, whatever the outcome was.
--
-- :states are 3 completed, 4 failed, 5 cancelled, 2 failing, 0 given back without counting the attempt; null: all of
-- them completed. The caller sorts the rows by queue and seq: then two batches lock in one order. The answer is null
-- if everything ended as asked. The statements are in sql/functions/0001_settle.sql.
select s.settled_seqs, s.settled_leases, s.settled_states
from
    pgjq.settle(
        :queue_ids::text::integer[], :seqs::text::bigint[], :leases::text::integer[], :states::text::smallint[],
        :results::text::bytea[], :errors::text::text[], :delays::text::double precision[], '1s'
    ) as s
