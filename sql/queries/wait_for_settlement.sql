-- Wait until no transaction in flight ends this job: such a transaction holds the row lock until it commits or rolls
-- back.
--
-- Index: the primary key.
select j.lease from pgjq.job as j
where j.seq = :seq and j.queue_id = :queue_id
for share
