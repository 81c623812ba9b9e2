-- The schedules that are due, the time, and the seconds until the next one is; one row without a name if none is.
-- Guarantees: sql/functions/0001_schedule_ticks.sql.
--
-- Index: schedule_due, from the past to now.
select
    t.now, t.seconds, s.name, s.queue, ''::bytea as payload, s.created_at, s.changed_at, s.cron, s.every, s.timezone,
    s.start_at, s.end_at, s.missed, s.overlap, s.jitter, s.starting_deadline, s.options, s.paused, s.next_run_at,
    s.due_at, s.last_run_at, s.last_job_id, s.revision, s.error, s.task
from (
    select
        pgjq.now() as now, (
            select extract(epoch from d.due_at - pgjq.now())::double precision from pgjq.schedule as d
            where d.due_at is not null
            order by d.due_at limit 1
        ) as seconds
) as t
left join pgjq.due_schedules(:limit::integer) as s on true
