-- Want an answer: tell which job an id means now, and mark it, if it lives, so that whoever ends it tells those who
-- wait.
--
-- The mark and the end cannot miss each other: both take the lock of the job's row. If the mark is first, the end sees
-- it; if the end is first, there is no row to mark, and the caller, who looks afterwards, finds the job in `done`.
-- Index: body_id, then the primary key.
with wanted as materialized (
    select b.queue_id, b.seq
    from pgjq.body as b
    inner join pgjq.queue as q on b.queue_id = q.id
    where q.name = :queue and b.id = :id and not b.superseded
),

marked as (
    update pgjq.job as j
    set awaited = true
    from wanted as w
    where j.seq = w.seq and j.queue_id = w.queue_id and not j.awaited
)

select w.seq from wanted as w
