-- Want an answer: tell which job an id means now, and mark it, if it lives, so that whoever ends it tells those who
-- wait. See sql/functions/0001_answer.sql for what holds.
select w.seq from pgjq.want_answer(:queue::text, :id::text) as w (seq)
where w.seq is not null
