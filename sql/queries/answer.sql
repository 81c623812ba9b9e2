-- Answer: how jobs stand, by their ids and numbers; no row for one that is gone. See sql/functions/0001_answer.sql.
select s.seq, s.state, s.attempts, s.max_attempts, s.result, s.error, s.expired
from pgjq.standing(:queue::text, :ids::text::text[], :seqs::text::bigint[]) as s
