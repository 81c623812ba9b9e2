-- Keys of a key_strict_fifo queue that failed jobs block; a single null if the queue has another policy.
--
-- Index: done_blocked.
select distinct case when pgjq.is_strict(q.id) then d.singleton_key end as key
from pgjq.queue as q
left join pgjq.done as d
    on q.id = d.queue_id and pgjq.is_strict(d.queue_id) and d.state = 4 and not d.superseded
where q.name = :queue and (not pgjq.is_strict(q.id) or d.singleton_key is not null)
order by key
