-- Wait until no transaction is in flight that ends this job: its row is locked by whoever does, until that commits or
-- not.
--
-- Index: the primary key.
select j.lease from pgjq.job as j
where j.seq = :seq and j.queue_id = :queue_id
for share
