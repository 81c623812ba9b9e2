-- Enqueue everything on stages but the bodies, which `add_bodies` adds: see sql/functions/0001_enqueue_staged.sql.
select e.jobs, e.duplicates
from pgjq.enqueue_staged(
        :queue::text, :queue_id, :at::timestamptz, :options::jsonb, :stages::text[], :expected, true
    ) as e
