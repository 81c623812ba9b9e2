-- Inspect mark: a text that changes with each transaction that writes.
select pg_snapshot_xmax(pg_current_snapshot())::text as mark
