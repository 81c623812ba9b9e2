-- Queues and workers.

-- Queues: the name, the number that jobs refer to, the definition, and the last count of jobs.
create table pgjq.queue (
    id integer primary key default nextval('pgjq.queue_seq') * 8 check (pgjq.has_policy(id)),
    name text not null unique check (length(name) between 1 and 128 and name !~ '[\u0001-\u001f\u007f-\u009f]'),
    created_at timestamptz not null default pgjq.now(),
    defined boolean not null default false,     -- by create_queue, not only by its first job
    paused boolean not null default false,      -- claims skip it
    warned boolean not null default false,      -- it exceeds warning_queue_size, and subscribers were notified
    warning_queue_size integer check (warning_queue_size > 0),
    options jsonb,                              -- only what was set; jobs inherit it when they are enqueued
    dead_letter text generated always as (options ->> 'dead_letter') stored references pgjq.queue (name),
    stats jsonb,                                -- the last count
    check (dead_letter <> name)
);

-- Names of workers, and their numbers in jobs and history. A name outlives its worker.
create table pgjq.worker (
    id integer generated always as identity primary key,
    name text not null unique,
    last_seen timestamptz not null default pgjq.now(),
    prune_at timestamptz not null default pgjq.now() + interval '8 days'    -- when to check whether it is still needed
);

-- Running workers: one row for each start, until it stops. Leases do not depend on it.
create table pgjq.registration (
    id text primary key,                        -- chosen by the worker at its start
    worker_id integer not null references pgjq.worker (id),
    queues text[] not null,
    started_at timestamptz not null default pgjq.now(),
    last_seen timestamptz not null default pgjq.now(),
    -- Seconds between heartbeats. Workers insert this themselves, and pruning computes with every value.
    heartbeat double precision not null check (heartbeat between 0 and 3155760000)
);
