-- The version of the schema, the process that answers, and the isolation level. If the function is missing, the schema
-- is missing.
select
    pgjq.schema_version() as version, pg_backend_pid() as pid, current_setting('transaction_isolation') as isolation
