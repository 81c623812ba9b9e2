-- Change a schedule, if it has the revision that the caller has read; return its name, and have the workers look at it.
with changed as (
    update pgjq.schedule as s
    set
        queue = :queue::text, payload = :payload::bytea, changed_at = :changed_at::timestamptz, cron = :cron::text,
        every = :every::double precision, timezone = :timezone::text, start_at = :start_at::timestamptz,
        end_at = :end_at::timestamptz, missed = :missed::text, overlap = :overlap::text,
        jitter = :jitter::double precision, starting_deadline = :starting_deadline::double precision,
        options = :options::text::jsonb, settings = :settings::text::jsonb, paused = :paused::boolean,
        next_run_at = :next_run_at::timestamptz, due_at = :due_at::timestamptz, error = :error::text,
        task = :task::text,
        revision = s.revision + 1
    where s.name = :name::text and s.revision = :revision::integer
    returning s.name
)

select changed.name, pgjq.wake_schedules() as woken from changed
