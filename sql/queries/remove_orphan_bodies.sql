-- Remove the orphan bodies that dead writers have left in a queue: see sql/functions/0001_bulk_bodies.sql.
select pgjq.remove_orphan_bodies(q.id) as removed
from pgjq.queue as q
where q.name = :queue
