-- Which jobs failed and will be tried again, when, and why did they fail?
--
-- runs_in   until the next attempt; negative: it is due, and waits for a worker.
-- attempts  runs so far, of max_attempts at most.
--
-- Normal: few, of several kinds.
-- Not so: many with one error_type: a service that they all call is down. Pause the queue (`pgjq queues pause`) until
-- it is back, or they will use up their attempts.
--
-- Exact; the 100 that run next are shown. How many there are in all is counted_failing of backlog.sql.
select
    f.queue, f.id, f.task, f.singleton_key, f.attempts, f.max_attempts, f.stalled, f.run_at, f.runs_in, f.error_type,
    f.error_message
from pgjq.failing as f
order by f.run_at
limit 100;
