-- Make the jobs of a bulk write over one connection, unless it has been made: see sql/functions/0001_bulk_writes.sql.
select w.jobs, w.duplicates, w.made_before
from pgjq.commit_write(:queue::text, :write_id::text, :batch, :stages::text[], :expected) as w
