-- Set a mark that lasts until the end of the transaction; `has_transaction_mark` finds it only in there.
select pg_catalog.set_config('pgjq.job_transaction', 'open', true)
