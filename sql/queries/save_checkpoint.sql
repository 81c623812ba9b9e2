-- Save a checkpoint for the job's next run, if the lease still holds: a row comes back then, else none.
--
-- The job's row is locked first, so that a reaper and a new owner cannot come between the check and the write.
-- Index: the primary keys.
with held as materialized (
    select j.queue_id, j.seq from pgjq.job as j
    where j.seq = :seq and j.queue_id = :queue_id and j.lease = :lease and j.state + 0 = 1
    for no key update
)

insert into pgjq.progress (queue_id, seq, checkpoint)
select h.queue_id, h.seq, :checkpoint from held as h
on conflict (seq, queue_id) do update set checkpoint = excluded.checkpoint
returning seq
