-- Make jobs of what is on stages, all or none, unless it has been done: see sql/functions/0001_stage.sql.
select e.jobs, e.duplicates, e.written_before
from pgjq.enqueue_staged(:queue::text, :stages::text[], :expected, :write_id::text, :batch) as e
