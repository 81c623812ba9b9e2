-- Fail invalid jobs: end jobs with invalid values as failed. Guarantees: sql/functions/0001_invalid_jobs.sql.
select pgjq.fail_invalid_jobs(:queues::text::text[]) as jobs
