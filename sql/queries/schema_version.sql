-- The version of the schema in this database, and the session that answers. That the function is missing means that the
-- schema is.
select pgjq.schema_version() as version, pg_backend_pid() as pid
