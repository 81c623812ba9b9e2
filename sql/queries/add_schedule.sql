-- Create a schedule, if its name is free; return its name, and have the workers look at it.
with new as (
    insert into pgjq.schedule (
        name, queue, payload, created_at, changed_at, cron, every, timezone, start_at, end_at, missed, overlap, jitter,
        starting_deadline, options, settings, paused, next_run_at, due_at, task
    )
    values (
        :name::text, :queue::text, :payload::bytea, :created_at::timestamptz, :changed_at::timestamptz, :cron::text,
        :every::double precision, :timezone::text, :start_at::timestamptz, :end_at::timestamptz, :missed::text,
        :overlap::text, :jitter::double precision, :starting_deadline::double precision, :options::text::jsonb,
        :settings::text::jsonb, :paused::boolean, :next_run_at::timestamptz, :due_at::timestamptz, :task::text
    )
    on conflict (name) do nothing
    returning name
)

select new.name, pgjq.wake_schedules() as woken from new
