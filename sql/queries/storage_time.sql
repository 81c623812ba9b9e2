-- The time by which schedules are planned.
select pgjq.now() as now
