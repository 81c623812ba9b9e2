-- Inspect audit: the latest :limit actions before number :before, of one queue or of all. Index: the primary key.
select a.id, a.at, a.actor, a.action, a.queue, a.ids[1:20], cardinality(a.ids), a.count
from pgjq.audit as a
where a.id < coalesce(:before::bigint, 9223372036854775807) and (:queue::text is null or a.queue = :queue)
order by a.id desc
limit :limit
