-- The tables of pgjq.
--
-- A job is two rows, then three: `body` is who it is and what it carries, and never moves; `job` is the narrow,
-- fixed-width row that changes while the job lives; `done` is how it ended. Finishing moves a row from `job` to
-- `done` in one statement, so a job is in exactly one of the two in every snapshot. An id is taken by one unique
-- index on `body`. Every table is partitioned by queue, so that a queue may be given storage of its own; until then
-- the default partition holds everything.

create table pgjq.queue (
    id integer generated always as identity primary key,
    name text not null unique,
    created_at timestamptz not null default pgjq.now()
);

create table pgjq.worker (
    id integer generated always as identity primary key,
    name text not null unique,
    started_at timestamptz not null default pgjq.now(),
    last_seen timestamptz not null default pgjq.now(),
    queues text[] not null default '{}'
);

-- The order of a queue: given at the enqueue, never again, and shared by all queues.
create sequence pgjq.job_seq;

create table pgjq.body (
    seq bigint not null,
    created_at timestamptz not null,
    queue_id integer not null,
    superseded boolean not null default false,  -- the id was free and was enqueued again as another row
    id text not null,
    payload bytea not null,
    options jsonb,                              -- only what was set
    primary key (seq, queue_id)
) partition by list (queue_id);

create unique index body_id on pgjq.body (queue_id, id) where not superseded;

create table pgjq.job (
    seq bigint not null,
    run_at timestamptz not null,
    locked_until timestamptz,                   -- the earlier of lease and expiry; null: neither
    expire_at timestamptz,                      -- when this attempt has taken too long
    started_at timestamptz,
    result_ttl double precision not null,
    queue_id integer not null,
    lease integer not null default 0,           -- raised by every claim; the fence
    worker_id integer,
    lease_seconds real,                         -- what a heartbeat adds; as the claim resolved it
    delete_after real not null,                 -- seconds that the record stays when the job has ended; 0: for ever
    rank smallint not null,                     -- minus priority, so that (rank, seq) ascends
    attempts smallint not null default 0,
    max_attempts smallint not null,
    stalled smallint not null default 0,
    max_stalled smallint,
    state smallint not null default 0,          -- 0 queued, 1 processing, 2 failing
    ready boolean not null,                     -- may be claimed now; run_at has passed, nobody holds it
    requeue_exhausted boolean not null default false,
    cancel_requested boolean not null default false,
    awaited boolean not null default false,     -- somebody wants to be told when it ends
    singleton_key text,
    primary key (seq, queue_id)
) partition by list (queue_id);

-- Claiming walks this index from its head. Jobs that wait for their time are not in it, however many they are.
create index job_ready on pgjq.job (queue_id, rank, seq) where ready;
-- Promotion walks this one from the past to now.
create index job_waiting on pgjq.job (run_at) where not ready and state <> 1;
-- Reaping walks this one from the past to now.
create index job_lease on pgjq.job (locked_until) where state = 1;

create table pgjq.done (
    seq bigint not null,
    finished_at timestamptz not null,
    expires_at timestamptz not null,            -- until then the result can be read and the id is taken
    started_at timestamptz,
    delete_at timestamptz,                      -- when the record goes; null: never
    queue_id integer not null,
    lease integer not null,
    worker_id integer,
    delete_after real not null,
    rank smallint not null,
    attempts smallint not null,
    max_attempts smallint not null,
    stalled smallint not null,
    state smallint not null,                    -- 3 completed, 4 failed, 5 cancelled
    superseded boolean not null default false,  -- as in body: history of an id that is another job now
    singleton_key text,
    result bytea,
    error text,                                 -- JSON: type, message, traceback
    primary key (seq, queue_id)
) partition by list (queue_id);

create index done_delete on pgjq.done (delete_at);

-- What only some jobs have: a checkpoint, the error of the last attempt, the workers that it stalled on.
create table pgjq.progress (
    seq bigint not null,
    queue_id integer not null,
    checkpoint bytea,
    error text,
    stalled_on text[] not null default '{}',    -- oldest first, the last twenty
    primary key (seq, queue_id)
) partition by list (queue_id);

create table pgjq.body_default partition of pgjq.body default;
create table pgjq.job_default partition of pgjq.job default with (
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create table pgjq.done_default partition of pgjq.done default;
create table pgjq.progress_default partition of pgjq.progress default;

-- A queue's statistics are wrong the moment after they are taken: full one minute, empty the next. A plan made from
-- them is right by luck (a claim of 200 took 1.5 ms or 800 ms). So the planner gets none for the columns that change:
-- it then assumes a fixed share of the table, whose size it always knows, and walks the index that the statement was
-- written for.
alter table pgjq.job alter column queue_id set statistics 0;
alter table pgjq.job alter column rank set statistics 0;
alter table pgjq.job alter column state set statistics 0;
alter table pgjq.job alter column ready set statistics 0;
alter table pgjq.job alter column lease set statistics 0;
alter table pgjq.job alter column run_at set statistics 0;
alter table pgjq.job alter column locked_until set statistics 0;
alter table pgjq.job_default alter column queue_id set statistics 0;
alter table pgjq.job_default alter column rank set statistics 0;
alter table pgjq.job_default alter column state set statistics 0;
alter table pgjq.job_default alter column ready set statistics 0;
alter table pgjq.job_default alter column lease set statistics 0;
alter table pgjq.job_default alter column run_at set statistics 0;
alter table pgjq.job_default alter column locked_until set statistics 0;
