-- Claim: give up to :limit due jobs of some queues, in the order of the queues, to one worker.
--
-- Guarantees
--   * No two callers get the same job: a row that another claim has locked is skipped, not waited for.
--   * Highest priority first, then the order of enqueueing; but the rows come in any order.
--   * Each claim raises the job's lease. Whoever held it before can no longer end, extend or checkpoint it.
--   * At most :limit rows, each with locked_until = now + lease, or the attempt's expiry if that comes first.
--
-- It is one walk from the head of the index job_ready, `… order by rank, seq limit :limit for update skip locked`, and
-- lives in sql/functions/0001_claim.sql, with the settings that see to it.
select
    c.queue, c.queue_id, c.seq, c.number, c.rank, c.id, c.payload, c.attempts, c.max_attempts, c.created_at,
    c.lease_seconds, c.expire_seconds, c.checkpoint, c.options
from
    pgjq.claim(
        :queues::text::text[], :worker::integer, :limit::integer, :lease::double precision, :expire::double precision,
        :max_stalled::integer, :requeue_exhausted::boolean, :claim_id::bigint
    ) as c
