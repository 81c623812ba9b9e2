-- Enqueue one job whose id is most likely free: its number if it was, else null, and nothing has happened.
-- See sql/functions/0001_enqueue.sql for what holds.
select pgjq.enqueue_job(:queue::text, :id::text, :payload::text::bytea, :settings::text::jsonb) as seq
