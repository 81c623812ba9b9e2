-- The version of the schema in this database. That the function is missing means that the schema is.
select pgjq.schema_version() as version
