-- Heartbeat: extend locked_until for every lease that is still held.
--
-- Guarantees
--   * A lease returned as renewed was renewed, or could not be renewed past its attempt's expiry.
--   * A lease returned only as not renewed is held, but another transaction has locked its row: an operator's, or the
--     handler's own. The statement skips such a row, because all other leases of the worker would lapse while it
--     waited. The caller repeats the heartbeat soon, and trusts that lease no longer than before.
--   * A lease that is not returned is lost.
--   * The lease lapses `lease_seconds` after this statement began, so a worker that counts from when it sent the
--     statement always stops trusting its lease before the database does.
--   * It never waits for a row, so the order of the rows does not matter, and it cannot deadlock.
--
-- The second part of the answer runs only if some lease was not renewed, and includes the renewed ones.
--
-- Index: the primary key, once for each given row, as in settle.sql.
with given as materialized (
    select g.queue_id, g.seq, g.lease
    from unnest((select :queue_ids::integer[]), (select :seqs::bigint[]), (select :leases::integer[]))
            as g (queue_id, seq, lease)
),

locked as materialized (
    select j.queue_id, j.seq, j.lease
    from given as g
    inner join pgjq.job as j on g.seq = j.seq and g.queue_id = j.queue_id and g.lease = j.lease and j.state + 0 = 1
    for no key update of j skip locked
),

renewed as (
    update pgjq.job as j
    set locked_until = least(pgjq.now() + make_interval(secs => j.lease_seconds), j.expire_at)
    from locked as k
    where j.seq = k.seq and j.queue_id = k.queue_id and j.lease = k.lease and j.state + 0 = 1
    returning j.seq, j.lease, j.cancel_requested
)

select r.seq, r.lease, r.cancel_requested, true as renewed from renewed as r
union all
select j.seq, j.lease, j.cancel_requested, false as renewed
from given as g
inner join pgjq.job as j on g.seq = j.seq and g.queue_id = j.queue_id and g.lease = j.lease and j.state + 0 = 1
where (select count(*) from renewed) < (select count(*) from given)
