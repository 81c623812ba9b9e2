-- Remove the orphan bodies that dead writers have left in a queue: see sql/functions/0001_bulk_bodies.sql.
select pgjq.remove_orphan_bodies(:queue::text) as removed
