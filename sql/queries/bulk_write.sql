-- The recorded result of a bulk write.
select w.id, w.queue, w.jobs, w.duplicates, w.quarantined, w.at
from pgjq.bulk_write as w
where w.id = :write_id::text and w.batch = :batch
