-- Prune the records of workers that fell silent more than a day ago, and names of workers that no record mentions. See
-- sql/functions/0001_workers.sql for what holds.
select pgjq.prune_workers() as pruned
