-- Find jobs by queue, state, key, task and age, in the order of enqueueing, :limit at a time after :after.
--
-- Index: the primary key of body, from :after on.
select v.*
from pgjq.jobs as v
where
    v.seq > :after
    and (:queue::text is null or v.queue = :queue)
    and (:state::text is null or v.state = :state)
    and (:singleton_key::text is null or v.singleton_key = :singleton_key)
    and (:task::text is null or v.task = :task)
    and (:created_before::timestamptz is null or v.created_at < :created_before)
    and (:created_after::timestamptz is null or v.created_at >= :created_after)
order by v.seq
limit :limit
