-- Schedules, what their last tick came to, and when the next one is. No payloads. Index: the primary key of
-- schedule_tick.
create view pgjq.schedules as
select
    s.name, s.queue, s.cron, s.every, s.timezone, s.start_at, s.end_at, s.missed, s.overlap, s.jitter,
    s.starting_deadline, s.options, s.paused, s.created_at, s.next_run_at, s.next_run_at - pgjq.now() as next_run_in,
    s.last_run_at, s.last_job_id, t.tick as last_tick, t.outcome as last_outcome, t.detail as last_detail, s.error
from pgjq.schedule as s
left join pgjq.schedule_tick as t on s.id = t.schedule_id and s.ticks % 100 = t.slot;
