-- Prune up to :limit jobs that have waited longer than their retention without ending. Guarantees:
-- sql/functions/0001_prune.sql.
select pgjq.prune_waiting(:limit::integer) as pruned
