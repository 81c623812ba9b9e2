-- Request the cancellation of a running job: the next of its handler's end, a heartbeat or a reaper ends it as
-- cancelled.
--
-- Index: body_id, then the primary key.
update pgjq.job as j
set cancel_requested = true
from pgjq.body as b, pgjq.queue as q
where
    q.name = :queue and b.queue_id = q.id and b.id = :id and not b.superseded
    and j.seq = b.seq and j.queue_id = b.queue_id and j.state = 1
returning j.seq
