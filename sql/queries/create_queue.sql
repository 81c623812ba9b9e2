-- Create a queue; return what happened. Guarantees: sql/functions/0001_queues.sql.
select c.became
from
    pgjq.create_queue(
        :queue::text, :policy::integer, :partition::boolean, :warning_queue_size::integer, :options::text::jsonb
    ) as c (became)
