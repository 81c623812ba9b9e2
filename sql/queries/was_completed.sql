-- Was the job completed under this lease?
--
-- Index: the primary key of done.
select d.seq from pgjq.done as d
where d.seq = :seq and d.queue_id = :queue_id and d.lease = :lease and d.state = 3
