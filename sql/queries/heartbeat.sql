-- Heartbeat: move locked_until ahead for every lease that is still held.
--
-- A lease that comes back is renewed, or could not be renewed past its attempt's expiry; one that does not is lost. The
-- lease lapses `lease_seconds` after this statement began, so a worker that counts from when it sent it always stops
-- trusting its lease before the database does. The caller sorts the rows by queue and seq, as settle's do.
--
-- Index: the primary key, once for each row given, as in settle.sql.
update pgjq.job as j
set locked_until = least(pgjq.now() + make_interval(secs => j.lease_seconds), j.expire_at)
from unnest((select :queue_ids::integer[]), (select :seqs::bigint[]), (select :leases::integer[]))
        as g (queue_id, seq, lease)
where j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
returning j.seq, j.lease, j.cancel_requested
