-- Peek: seconds until a job of these queues can be claimed; 0 or less: now; null: there is none.
-- The statement is in sql/functions/0001_peek.sql.
select pgjq.seconds_until_work(:queues::text::text[]) as seconds
