-- Pause a queue, so that claims skip it, or resume it and wake its workers; no row if the queue does not exist.
with changed as (
    update pgjq.queue as q set paused = :paused
    where q.name = :queue
    returning q.name
)

select c.name, case when not :paused then pgjq.wake(c.name)::text end as woken
from changed as c
