-- Does this lease still hold its job?
--
-- Index: the primary key.
select j.seq from pgjq.job as j
where j.seq = :seq and j.queue_id = :queue_id and j.lease = :lease and j.state + 0 = 1
