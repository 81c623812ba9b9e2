-- Prune up to :limit jobs that waited longer than their retention without being run to an end. See
-- sql/functions/0001_manage.sql for what holds.
select pgjq.prune_waiting(:limit::integer) as pruned
