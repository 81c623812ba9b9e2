-- Change a queue's definition; return what happened. Guarantees: sql/functions/0001_queues.sql.
select pgjq.update_queue(:queue::text, :changes::text::jsonb) as became
