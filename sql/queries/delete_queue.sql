-- Delete a queue and all its jobs; say what came of it. See sql/functions/0001_queues.sql for what holds.
select pgjq.delete_queue(:queue::text) as became
