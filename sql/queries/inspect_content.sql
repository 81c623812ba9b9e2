-- Inspect content: payload and checkpoint of a job, at most :most bytes of each, and their whole sizes. Index: body_id.
select
    substring(b.payload for :most), octet_length(b.payload),
    substring(p.checkpoint for :most), octet_length(p.checkpoint)
from pgjq.body as b
left join pgjq.progress as p on b.seq = p.seq and b.queue_id = p.queue_id
where b.queue_id = (select q.id from pgjq.queue as q where q.name = :queue) and b.id = :id and not b.superseded
