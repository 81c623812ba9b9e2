-- Is the mark of `mark_transaction` still there? Not if every statement is a transaction of its own.
select coalesce(pg_catalog.current_setting('pgjq.job_transaction', true), '') = 'open' as is_open
