-- Change a queue's definition; say what came of it. See sql/functions/0001_queues.sql for what holds.
select pgjq.update_queue(:queue::text, :changes::text::jsonb) as became
