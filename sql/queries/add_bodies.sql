-- Add most of the bodies of what is on stages, or the rest of them: see sql/functions/0001_stage.sql.
select pgjq.add_bodies(
    :write_id::text, :batch, :queue_id, :at::timestamptz, :options::jsonb, :stages::text[], :the_rest
) as added
