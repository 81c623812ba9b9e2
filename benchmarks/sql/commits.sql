-- How many transactions a database has seen, which is how many statements, where each of them commits.
select (xact_commit + xact_rollback)::bigint from pg_stat_database
where datname = %(name)s
