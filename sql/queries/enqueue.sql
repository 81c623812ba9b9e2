-- Enqueue a batch; returned rows without a number were not added. Guarantees: sql/functions/0001_enqueue_jobs.sql.
select e.n, e.status, e.state, e.result, e.seq
from pgjq.enqueue_jobs(
        :queue::text, :ids::text::text[], :payloads::text::bytea[], :common::text::jsonb, :own::text::jsonb[],
        :seqs::text::bigint[], :numbered::boolean
    ) as e
order by e.n
