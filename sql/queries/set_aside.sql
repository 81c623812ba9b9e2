-- Set aside: end jobs as failed that no statement can compute with. See sql/functions/0001_set_aside.sql for what
-- holds.
select pgjq.set_aside(:queues::text::text[]) as jobs
