-- Inspect blocked keys: of one queue or of all, :limit at the most. Index: done_blocked, job_failing.
select
    k.queue, k.singleton_key, k.state, k.id,
    extract(epoch from k.blocked_for)::double precision as blocked_for, k.waiting
from pgjq.blocked_keys as k
where :queue::text is null or k.queue = :queue
order by k.since
limit :limit
