-- Delete: forget jobs that are not running, and their ids.
--
-- The job's row goes first: a claim that was faster leaves nothing to delete, and then the rest of the job stays, too.
-- Index: body_id, then the primary keys.
with wanted as materialized (
    select b.queue_id, b.seq
    from pgjq.body as b
    inner join pgjq.queue as q on b.queue_id = q.id
    where q.name = :queue and b.id = any(:ids::text[]) and not b.superseded
),

live as (
    delete from pgjq.job as j
    using wanted as w
    where j.seq = w.seq and j.queue_id = w.queue_id and j.state <> 1
    returning j.queue_id, j.seq, j.awaited
),

ended as (
    delete from pgjq.done as d
    using wanted as w
    where d.seq = w.seq and d.queue_id = w.queue_id
    returning d.queue_id, d.seq
),

gone as (
    select l.queue_id, l.seq, l.awaited from live as l
    union all
    select e.queue_id, e.seq, false as awaited from ended as e
),

notes as (
    delete from pgjq.progress as p
    using gone as g
    where p.seq = g.seq and p.queue_id = g.queue_id
)

delete from pgjq.body as b
using gone as g
where b.seq = g.seq and b.queue_id = g.queue_id
returning
    b.id, case when g.awaited then pgjq.answer(array[pgjq.ending(:queue::text, b.id, 'deleted')]) end as answered
