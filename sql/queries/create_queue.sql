-- Create a queue; say what came of it. See sql/functions/0001_queues.sql for what holds.
select c.became
from
    pgjq.create_queue(
        :queue::text, :policy::integer, :partition::boolean, :warning_queue_size::integer, :options::text::jsonb
    ) as c (became)
