-- Find settled: how runs ended whose settlement got no answer. See sql/functions/0001_settle.sql.
--
-- Made after a second settle.sql, or await_job.sql, which waits for the lock of a first one that is still on its way.
select f.seq, f.lease, f.state, f.same_error
from
    pgjq.find_settled(
        :queue_ids::text::integer[], :seqs::text::bigint[], :leases::text::integer[], :errors::text::text[]
    ) as f
