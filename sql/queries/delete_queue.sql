-- Delete a queue and all its jobs; return what happened. Guarantees: sql/functions/0001_queues.sql.
select pgjq.delete_queue(:queue::text) as became
