-- Find claimed: the jobs of a claim whose answer was lost, as claim.sql would have returned them. See
-- sql/functions/0001_claim.sql.
select
    c.queue, c.queue_id, c.seq, c.lease_number, c.rank, c.id, c.payload, c.attempts, c.max_attempts, c.created_at,
    c.lease_seconds, c.expire_seconds, c.checkpoint, c.options, c.task, c.headers::text
from pgjq.find_claimed(:claim_id::bigint) as c
