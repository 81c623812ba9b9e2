-- Is the mark of `mark_transaction` still set? Not if every statement is its own transaction.
select coalesce(pg_catalog.current_setting('pgjq.job_transaction', true), '') = 'open' as is_open
