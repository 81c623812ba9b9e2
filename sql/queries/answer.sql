-- Answer: how one job stands, by its number; no row when it is gone. See sql/functions/0001_answer.sql for what holds.
select s.state, s.attempts, s.max_attempts, s.result, s.error, s.expired
from pgjq.standing(:queue::text, :seq::bigint) as s
