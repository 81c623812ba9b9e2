-- Claim: take up to :limit due jobs of some queues, in the order of the queues, for one worker.
--
-- Guarantees
--   * No two callers get the same job: a claim skips rows that another claim has locked, without waiting.
--   * Highest priority first, then the order of enqueueing; the rows are returned in any order.
--   * Each claim raises the job's lease. The previous holder can no longer end, extend or checkpoint the job.
--   * At most :limit rows, each with locked_until = now + lease, or the attempt's expiry if that comes first.
--
-- It walks the index job_ready from its head, `… order by rank, seq limit :limit for update skip locked`; or in each
-- queue from the rank and seq that the caller gives, and then from its head if jobs are missing. A caller that
-- remembers where its last claim ended begins at the head at least every five seconds (ADR 21). The statement and the
-- settings that force this plan are in sql/functions/0001_claim.sql.
select
    c.queue, c.queue_id, c.seq, c.lease_number, c.rank, c.id, c.payload, c.attempts, c.max_attempts, c.created_at,
    c.lease_seconds, c.expire_seconds, c.checkpoint, c.options, c.task, c.headers::text, c.walked
from
    pgjq.claim(
        :queues::text::text[], :worker::integer, :limit::integer, :lease::double precision, :expire::double precision,
        :max_stalled::integer, :requeue_exhausted::boolean, :claim_id::bigint,
        :after_ranks::text::smallint[], :after_seqs::text::bigint[]
    ) as c
