-- How many jobs ended in each minute of the last hour, and how long did they wait and run?
--
-- waited        from the enqueue to the beginning of the last attempt, with delays and earlier attempts.
-- ran           from the beginning to the end of the last attempt. Percentiles: half, 95 and 99 of 100 took no longer.
-- The current minute is not over yet. Jobs whose records were pruned or deleted are missing.
--
-- Normal: waited_p50 is milliseconds with idle workers, ran is what your handlers take.
-- Not so: waited grows and ran does not: too few workers (backlog.sql). ran grows: the handlers, or the services that
-- they call, are slower. failed in every minute: failures.sql.
--
-- Exact. It reads the jobs that ended in this hour and little else: a few microseconds per job. Until autovacuum has
-- run on a new table for the first time it reads all of it.
select
    t.minute, t.queue, t.completed, t.failed, t.cancelled,
    t.waited_p50, t.waited_p95, t.waited_p99, t.ran_p50, t.ran_p95, t.ran_p99
from pgjq.throughput as t
order by t.minute desc, t.queue asc;
