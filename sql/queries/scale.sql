-- Scale: the slots that a queue needs. See sql/functions/0001_totals.sql.
select pgjq.scale(:queue, :target)
