-- Find settled: the outcomes of runs whose settlement got no answer. See sql/functions/0001_settle.sql.
--
-- Runs after a second settle.sql, or after await_job.sql, which waits for the lock of a settlement still in flight.
select f.seq, f.lease, f.state, f.outcome, f.same_error
from
    pgjq.find_settled(
        :queue_ids::text::integer[], :seqs::text::bigint[], :leases::text::integer[], :errors::text::text[]
    ) as f
