-- How many jobs of a bulk write have not ended.
--
-- The jobs of a write carry its time. Index: job_ready and the primary key of body: as many rows as the queue has live
-- jobs.
select count(*) as unfinished
from pgjq.bulk_write as w
inner join pgjq.queue as q on w.queue = q.name
inner join pgjq.job as j on q.id = j.queue_id
inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id and w.at = b.created_at
where w.id = :write_id::text and w.batch = 0
