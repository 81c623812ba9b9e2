-- Notify of copied jobs: wake sleeping workers, notify subscribers.
select
    pgjq.wake(:queue::text) as woken,
    case when pgjq.has_subscribers() then (
            select pgjq.publish(array_agg(pgjq.event('queued', :queue::text, b.id, 0, task => b.task) order by b.seq))
            from pgjq.body as b
            where b.queue_id = :queue_id and b.seq = any(:seqs::bigint[])
        )
    end as published
