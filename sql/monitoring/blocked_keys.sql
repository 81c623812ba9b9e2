-- Which keys in strict order are blocked, by which job, and how many jobs wait behind it?
--
-- state    failed: the key is blocked until an operator acts. failing: until the job's next attempts are over.
-- waiting  jobs of the key behind it; exact below 100, and 100 means 100 or more.
--
-- Normal: no rows with state failed.
-- Not so: fix the cause and `pgjq retry` the job, or give it up with `pgjq delete`; the next job of its key then
-- runs. Age never unblocks a key.
--
-- Exact; only queues of the policy key_strict_fifo have such keys. The 100 longest blocked are shown.
select k.queue, k.singleton_key, k.state, k.id, k.since, k.blocked_for, k.waiting, k.error_type, k.error_message
from pgjq.blocked_keys as k
order by k.since
limit 100;
