-- Begin a bulk write, unless it has been made: see sql/functions/0001_bulk_writes.sql.
select w.jobs, w.duplicates, w.queue_id, w.at, w.options::text as options
from pgjq.open_write(:queue::text, :write_id::text, :batch) as w
