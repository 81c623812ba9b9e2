-- How many bytes this database has.
select pg_database_size(current_database())
