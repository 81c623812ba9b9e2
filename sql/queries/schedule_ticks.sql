-- The last ticks of a schedule, the newest first. Index: the primary key of schedule_tick.
select t.tick, t.at, t.outcome, t.job_id, t.detail
from pgjq.schedule as s
inner join pgjq.schedule_tick as t on s.id = t.schedule_id
where s.name = :name::text
order by t.n desc
