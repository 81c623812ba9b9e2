-- How many jobs wait in each queue, and for how long?
--
-- ready         jobs that could be claimed now; exact below 1,000, and 1,000 means 1,000 or more.
-- oldest_age    how long the first job in order has been due, the longest over all priorities. Live, by an index
--               probe. Delayed and retried jobs keep their old place, so a job behind the first may have been due for
--               longer: counted_oldest_age includes it.
-- processing    jobs that are being run; exact.
-- counted_…     what the maintenance leader counted at counted_at: exact then, about ten seconds old while a worker
--               runs.
--
-- Normal: oldest_age stays at the seconds that workers need to notice a job, and does not grow.
-- Not so: it grows while processing is 0: no worker runs for this queue (workers.sql), or it is paused. It grows
-- while processing is high: add workers, or find out what takes so long (throughput.sql). counted_at is old: no
-- worker runs at all.
select
    b.queue, b.paused, b.ready, date_trunc('milliseconds', b.oldest_age) as oldest_age, b.processing, b.counted_ready,
    b.counted_deferred, b.counted_failing, date_trunc('milliseconds', b.counted_oldest_age) as counted_oldest_age,
    b.counted_at
from pgjq.backlog as b
order by b.oldest_age desc nulls last, b.queue asc;
