-- Pause a queue, so that claims pass it over, or let it go on and wake its workers; no row: there is no such queue.
with changed as (
    update pgjq.queue as q set paused = :paused
    where q.name = :queue
    returning q.name
)

select c.name, case when not :paused then pgjq.wake(c.name)::text end as woken
from changed as c
