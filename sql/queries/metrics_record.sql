-- Metrics: count what has ended since the last call. See sql/functions/0001_totals.sql.
select pgjq.record_totals()
