-- Prune up to :limit records of ended jobs whose time has passed. See sql/functions/0001_manage.sql for what holds.
select pgjq.prune_ended(:limit::integer) as pruned
