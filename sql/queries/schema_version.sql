-- The version of the schema in this database, the session that answers, and how its transactions are isolated. That the
-- function is missing means that the schema is.
select
    pgjq.schema_version() as version, pg_backend_pid() as pid, current_setting('transaction_isolation') as isolation
