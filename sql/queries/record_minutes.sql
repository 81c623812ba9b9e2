-- Record minutes: statistics of the minutes that have passed. See sql/functions/0001_inspection.sql.
select pgjq.record_minutes()
