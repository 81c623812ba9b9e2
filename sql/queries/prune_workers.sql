-- Prune records of workers that have been silent for more than a day, and worker names that no record refers to.
-- Guarantees: sql/functions/0001_workers.sql.
select pgjq.prune_workers() as pruned
