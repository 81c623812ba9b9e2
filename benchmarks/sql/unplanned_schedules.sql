-- How many schedules no worker has planned yet.
select count(*) from pgjq.schedule as s where s.next_run_at is null
