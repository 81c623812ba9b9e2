-- Set aside: end jobs with invalid values as failed. Guarantees: sql/functions/0001_set_aside.sql.
select pgjq.set_aside(:queues::text::text[]) as jobs
