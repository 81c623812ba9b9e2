-- Prune up to :limit records of ended jobs after their retention. Guarantees: sql/functions/0001_prune.sql.
select pgjq.prune_ended(:limit::integer) as pruned
