-- Prune up to :limit records of ended jobs after their retention; count them. Also time slots that have ended, records
-- of workers that have been silent for more than a day, and stages that dead writers left more than three days ago.
-- Guarantees: sql/functions/0001_prune.sql, 0001_workers.sql, 0001_stages.sql. Index: time_slot_ends.
with slots as (delete from pgjq.time_slot as s where s.ends_at <= pgjq.now())

select pgjq.prune_ended(:limit::integer) as pruned, pgjq.prune_workers() as workers, pgjq.drop_old_stages() as stages
