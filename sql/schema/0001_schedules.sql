-- Schedules: what makes jobs at times, and the last ticks of each.

-- Schedules: their times, the jobs that they make, and their next run.
create table pgjq.schedule (
    id integer generated always as identity primary key,
    name text not null unique check (length(name) between 1 and 128 and name !~ '[\u0001-\u001f\u007f-\u009f]'),
    queue text not null check (length(queue) between 1 and 128 and queue !~ '[\u0001-\u001f\u007f-\u009f]'),
    payload bytea not null,
    task text,                                  -- that its payload names
    -- Of its jobs, as its creator passed them.
    options jsonb not null default '{}' check (jsonb_typeof(options) = 'object'),
    settings jsonb,                             -- the same, as `pgjq.add_jobs` reads them; null until a worker plans it
    cron text check (length(cron) <= 256),
    every double precision check (every between 1 and 3155760000), -- seconds
    timezone text not null default 'UTC' check (length(timezone) <= 64),
    start_at timestamptz check (start_at between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00'),
    end_at timestamptz check (end_at between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00'),
    missed text not null default 'once' check (missed in ('skip', 'once', 'all')),
    overlap text not null default 'allow' check (overlap in ('allow', 'skip', 'queue_one')),
    jitter double precision not null default 0 check (jitter between 0 and 3155760000),
    starting_deadline double precision check (starting_deadline > 0 and starting_deadline <= 3155760000),
    paused boolean not null default false,
    created_at timestamptz not null default pgjq.now(),
    changed_at timestamptz not null default pgjq.now(), -- of its times; an interval without start_at counts from here
    next_run_at timestamptz,                    -- null: it has ended, or no worker has planned it yet
    due_at timestamptz,                         -- when a worker must look at it; null: never
    last_run_at timestamptz,
    last_job_id text,
    last_seq bigint,                            -- the last job's number
    jobs bigint[] not null default '{}',        -- numbers of jobs that may be live, for overlap = 'queue_one'
    revision integer not null default 0,        -- raised by every change and every tick; the fence of a tick
    ticks bigint not null default 0,            -- how many ticks were recorded
    error text,                                 -- why it cannot run
    check ((cron is null) <> (every is null))
) with (fillfactor = 80);

-- Workers walk this one from the past to now.
create index schedule_due on pgjq.schedule (due_at) where due_at is not null;

-- The last hundred ticks of each schedule: the next one replaces the oldest.
create table pgjq.schedule_tick (
    schedule_id integer not null references pgjq.schedule (id) on delete cascade,
    slot smallint not null,
    n bigint not null,                          -- counts from 1
    tick timestamptz not null,
    at timestamptz not null,
    outcome text not null,
    job_id text,
    detail text,
    primary key (schedule_id, slot)
) with (fillfactor = 80);
