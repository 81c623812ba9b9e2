-- A write of many jobs that has been made: what came of it.
select w.id, w.queue, w.jobs, w.duplicates, w.at
from pgjq.bulk_write as w
where w.id = :write_id::text and w.batch = :batch
