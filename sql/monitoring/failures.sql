-- Which kinds of errors made jobs fail for good in the last 24 hours, and how often?
--
-- error_type  the name of the exception; Stalled: its worker died, or the attempt took too long.
--
-- Normal: a few kinds that you know.
-- Not so: a kind that began at a certain time (first_at): check what was deployed then.
--
-- Exact; it reads the failed jobs of this day and no completed ones.
select
    f.queue, f.error_type, count(*) as jobs, min(f.finished_at) as first_at, max(f.finished_at) as last_at,
    max(f.error_message) as for_example
from pgjq.failed as f
where f.finished_at > pgjq.now() - interval '24 hours'
group by f.queue, f.error_type
order by jobs desc
limit 100;
