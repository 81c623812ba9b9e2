-- Want an answer: return the number of the job that has this id now, and mark it, if it is live, so that its end is
-- notified to its waiters. Guarantees: sql/functions/0001_answer.sql.
select w.seq from pgjq.want_answer(:queue::text, :id::text) as w (seq)
where w.seq is not null
