-- Prune up to :limit records of ended jobs whose time has passed, and whose result's as well: until then it can be read
-- and its id is taken. Small batches, and nothing that workers use is locked.
--
-- Index: done_delete, from the past to now; then the primary keys, once for each: through arrays, which the planner
-- does not count.
with old as materialized (
    select past.queue_id, past.seq from pgjq.done as past
    where past.delete_at <= pgjq.now() and (past.superseded or past.state = 5 or past.expires_at <= pgjq.now())
    order by past.delete_at
    limit :limit for update skip locked
),

doomed as materialized (
    select d.queue_id, d.seq
    from unnest(array(select old.queue_id from old), array(select old.seq from old)) as d (queue_id, seq)
),

records as (
    delete from pgjq.done as r
    using doomed as d
    where r.seq = d.seq and r.queue_id = d.queue_id
),

notes as (
    delete from pgjq.progress as p
    using doomed as d
    where p.seq = d.seq and p.queue_id = d.queue_id
)

delete from pgjq.body as b
using doomed as d
where b.seq = d.seq and b.queue_id = d.queue_id
returning b.seq
