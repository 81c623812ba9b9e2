-- Job state: the states of jobs, by id and number; no row for a job that is gone. See sql/functions/0001_waiters.sql.
select s.seq, s.state, s.attempts, s.max_attempts, s.result, s.error, s.expired
from pgjq.job_state(:queue::text, :ids::text::text[], :seqs::text::bigint[]) as s
