-- Attempts: the ended runs of a job, oldest first, twenty at most: the first, and the last nineteen. One snapshot.
--
-- Index: body_id, then the primary keys. The statement is in sql/functions/0001_get.sql.
select a.number, a.worker, a.started_at, a.ended_at, a.outcome, a.error
from pgjq.get_attempts(:queue::text, :id::text) as a
