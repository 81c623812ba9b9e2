-- How many jobs PgQueuer has not completed.
select count(*) from pgqueuer
