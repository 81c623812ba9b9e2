-- Move the invalid rows of stages to the quarantine: see sql/functions/0001_bulk_writes.sql.
select pgjq.quarantine_staged(:queue::text, :write_id::text, :batch, :stages::text[]) as moved
