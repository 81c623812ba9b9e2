-- How many sessions a database has.
select count(*) from pg_stat_activity
where datname = %(name)s
