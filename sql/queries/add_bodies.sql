-- Add the first part of the bodies on stages, or the rest: see sql/functions/0001_bulk_bodies.sql.
select pgjq.add_bodies(
    :write_id::text, :batch, :queue_id, :at::timestamptz, :options::jsonb, :stages::text[], :the_rest
) as added
