-- The server process of the client of pgjq in a database.
select pid from pg_stat_activity
where datname = %(name)s and application_name = 'pgjq'
