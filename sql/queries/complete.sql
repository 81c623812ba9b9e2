-- Complete a job inside its handler's transaction: settle.sql with one row, and a limit for the pause before COMMIT.
--
-- From here on the transaction locks the job's row, which reapers skip. If the process freezes or its host vanishes
-- before COMMIT, the server ends the session after :limit milliseconds and frees the row. No code of the handler runs
-- in this pause.
select
    s.settled_states,
    pg_catalog.set_config('idle_in_transaction_session_timeout', :limit::text, true) as idle_limit
from
    pgjq.settle(
        :queue_ids::text::integer[], :seqs::text::bigint[], :leases::text::integer[], null, :results::text::bytea[],
        null, null
    ) as s
