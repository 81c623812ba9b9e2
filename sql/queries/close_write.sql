-- Record the result of a bulk write, and drop its stages: see sql/functions/0001_bulk_writes.sql.
select pgjq.close_write(:write_id::text, :batch, :stages::text[], :jobs, :duplicates) as closed
