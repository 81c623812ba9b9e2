-- Which jobs failed for good of late, and why?
--
-- They stay until their record is pruned, 7 days unless the queue says otherwise. The error is shown here for as
-- long, also when its time to live (result_ttl) has passed.
--
-- Normal: what your business calls an error.
-- Not so: mend the cause, then `pgjq retry` puts one back with all its attempts, and `pgjq jobs retry --state failed`
-- many. In a queue in strict order each of these blocks its key (blocked_keys.sql).
--
-- Exact; the newest 100 are shown. failures.sql counts them by kind.
select
    f.queue, f.id, f.singleton_key, f.attempts, f.max_attempts, f.stalled, f.finished_at, f.worker, f.error_type,
    f.error_message
from pgjq.failed as f
order by f.finished_at desc
limit 100;
