-- How much has each queue to do, and how long have its jobs been waiting?
--
-- ready         jobs that could be claimed this moment; exact below 1,000, and 1,000 means so many or more.
-- oldest_age    how long the first job of the line has been due, the longest over all priorities. Live, by a probe of
--               an index. Jobs that were delayed or are retried keep their old place in line, so one behind the first
--               may have been due for longer: counted_oldest_age knows.
-- processing    jobs that are being run; exact.
-- counted_…     what the workers' upkeep counted at counted_at: exact then, about ten seconds old while a worker
--               runs.
--
-- Normal: oldest_age stays near the time that workers need to look up, seconds, and does not grow.
-- Not so: it grows while processing is 0: no worker runs for this queue (workers.sql), or it is paused. It grows
-- while processing is high: add workers, or see what takes so long (throughput.sql). counted_at is old: no worker
-- runs at all.
select
    b.queue, b.paused, b.ready, date_trunc('milliseconds', b.oldest_age) as oldest_age, b.processing, b.counted_ready,
    b.counted_deferred, b.counted_failing, date_trunc('milliseconds', b.counted_oldest_age) as counted_oldest_age,
    b.counted_at
from pgjq.backlog as b
order by b.oldest_age desc nulls last, b.queue asc;
