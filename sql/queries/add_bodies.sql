-- Add the bodies of what is on stages, apart from the rest of a write: see sql/functions/0001_stage.sql.
select pgjq.add_bodies(:queue_id, :at::timestamptz, :options::jsonb, :stages::text[]) as added
