-- Does this lease still hold its job, and has its deadline passed?
--
-- Index: the primary key.
select coalesce(j.locked_until <= pgjq.now(), false) as is_over from pgjq.job as j
where j.seq = :seq and j.queue_id = :queue_id and j.lease = :lease and j.state + 0 = 1
