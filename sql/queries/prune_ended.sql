-- Prune up to :limit records of ended jobs whose time has passed. Small batches, and nothing that workers use is locked.
--
-- Index: done_delete, from the past to now.
with old as materialized (
    select d.queue_id, d.seq from pgjq.done as d
    where d.delete_at <= pgjq.now()
    order by d.delete_at
    limit :limit for update skip locked
),

records as (
    delete from pgjq.done as d
    using old as o
    where d.seq = o.seq and d.queue_id = o.queue_id
),

notes as (
    delete from pgjq.progress as p
    using old as o
    where p.seq = o.seq and p.queue_id = o.queue_id
)

delete from pgjq.body as b
using old as o
where b.seq = o.seq and b.queue_id = o.queue_id
returning b.seq
