-- Which jobs failed for good recently, and why?
--
-- They stay until their record is pruned, 7 days unless the queue sets another time. The error is shown here for as
-- long, also when its time to live (result_ttl) has passed.
--
-- Normal: errors that your application expects.
-- Not so: fix the cause, then `pgjq retry` requeues one job with all its attempts, and `pgjq jobs retry --state
-- failed` many. In a queue in strict order each of these blocks its key (blocked_keys.sql).
--
-- Exact; the newest 100 are shown. failures.sql counts them by kind.
select
    f.queue, f.id, f.task, f.singleton_key, f.attempts, f.max_attempts, f.stalled, f.finished_at, f.worker,
    f.error_type, f.error_message
from pgjq.failed as f
order by f.finished_at desc
limit 100;
