-- Add bodies of what is on stages, from one id to another: see sql/functions/0001_stage.sql.
select pgjq.add_bodies(
    :queue_id, :at::timestamptz, :options::jsonb, :stages::text[], :first::text, :beyond::text
) as added
