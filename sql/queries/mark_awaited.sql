-- Mark awaited: return the number of the job that has this id now, and mark it, if it is live, so that its end is
-- notified to its waiters. Guarantees: sql/functions/0001_waiters.sql.
select m.seq from pgjq.mark_awaited(:queue::text, :id::text) as m (seq)
where m.seq is not null
