-- Schedules: one, or all by name. The columns are those of `pgjq.schedules.Schedule`, in order.
select
    s.name, s.queue, s.payload, s.created_at, s.changed_at, s.cron, s.every, s.timezone, s.start_at, s.end_at, s.missed,
    s.overlap, s.jitter, s.starting_deadline, s.options, s.paused, s.next_run_at, s.due_at, s.last_run_at,
    s.last_job_id, s.revision, s.error, s.task
from pgjq.schedule as s
where :name::text is null or s.name = :name::text
order by s.name
