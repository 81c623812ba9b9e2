-- The tables of pgjq.
--
-- A job is two rows, then three: `body` is who it is and what it carries, and never moves; `job` is the narrow,
-- fixed-width row that changes while the job lives; `done` is how it ended. Finishing moves a row from `job` to
-- `done` in one statement, so a job is in exactly one of the two in every snapshot. An id is taken by one unique
-- index on `body`. Every table is partitioned by queue, so that a queue may be given storage of its own; until then
-- the default partition holds everything.

-- A queue's number tells its policy and where its jobs live, and neither ever changes: the last three bits are the
-- policy (0 standard, 1 short, 2 singleton, 3 stately, 4 exclusive, 5 key_strict_fifo), and below 0 the queue has
-- partitions of its own. Since every row of a job names its queue, constraints and indexes know the policy without a
-- column, a trigger or a look at another table, and no INSERT can get round them.
create sequence pgjq.queue_seq;

-- What a job in a state takes up of its key, by the policy of its queue: of each number there can be one; null is free.
create function pgjq.place(queue_id integer, state smallint) returns integer
language sql immutable parallel safe
return case queue_id & 7
    when 1 then case when state = 0 then 0 end  -- short: queued
    when 2 then case when state = 1 then 1 end  -- singleton: processing
    when 3 then state                           -- stately: each of them
    when 4 then 0                               -- exclusive: all of them together
    when 5 then case when state > 0 then 1 end  -- key_strict_fifo: processing and failing together
end;

create table pgjq.queue (
    id integer primary key default nextval('pgjq.queue_seq') * 8 check ((id & 7) <= 5),
    name text not null unique check (length(name) between 1 and 128 and name !~ '[\u0001-\u001f\u007f-\u009f]'),
    created_at timestamptz not null default pgjq.now(),
    defined boolean not null default false,     -- by create_queue, and not by its first job
    paused boolean not null default false,      -- claims pass it over
    warned boolean not null default false,      -- longer than warning_queue_size, and that has been told
    warning_queue_size integer check (warning_queue_size > 0),
    options jsonb,                              -- only what was set; its jobs inherit it when they are enqueued
    dead_letter text generated always as (options ->> 'dead_letter') stored references pgjq.queue (name),
    stats jsonb,                                -- as they were counted last
    check (dead_letter <> name)
);

-- The names of workers, and the numbers that jobs and history name them by. A name outlives its worker.
create table pgjq.worker (
    id integer generated always as identity primary key,
    name text not null unique,
    last_seen timestamptz not null default pgjq.now(),
    prune_at timestamptz not null default pgjq.now() + interval '8 days'    -- when to look whether it is still needed
);

-- Workers that run: one row for each start, until it stops. Nothing that holds jobs depends on it.
create table pgjq.registration (
    id text primary key,                        -- as the worker chose it when it started
    worker_id integer not null references pgjq.worker (id),
    queues text[] not null,
    started_at timestamptz not null default pgjq.now(),
    last_seen timestamptz not null default pgjq.now(),
    -- Within so many seconds it is seen again. Workers insert this themselves, and pruning computes with all of them.
    heartbeat double precision not null check (heartbeat between 0 and 3155760000)
);

-- The order of a queue: given at the enqueue, never again, and shared by all queues.
create sequence pgjq.job_seq;

-- Numbers that a transaction has drawn for jobs which it enqueues in more than one call. No other transaction can use
-- them.
create table pgjq.reserved (
    xid xid8 not null default pg_current_xact_id(),
    seqs int8multirange not null
);

create table pgjq.body (
    seq bigint not null,
    created_at timestamptz not null,
    queue_id integer not null,
    superseded boolean not null default false,  -- the id was free and was enqueued again as another row
    id text not null,
    payload bytea not null,
    options jsonb,                              -- only what was set, by the job or by its queue's definition
    source jsonb,                               -- where a dead letter came from: queue, id, attempts, error
    primary key (seq, queue_id)
) partition by list (queue_id);

create unique index body_id on pgjq.body (queue_id, id) where not superseded;

create table pgjq.job (
    seq bigint not null,
    run_at timestamptz not null,
    locked_until timestamptz,                   -- the earlier of lease and expiry; null: neither
    expire_at timestamptz,                      -- when this attempt has taken too long
    started_at timestamptz,
    claim_id bigint,                            -- of the claim that took it, by which a lost answer is found
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
    held boolean not null default false,        -- due, but another job of its key comes first and will wake it
    requeue_exhausted boolean not null default false,
    cancel_requested boolean not null default false,
    awaited boolean not null default false,     -- somebody wants to be told when it ends
    singleton_key text,
    primary key (seq, queue_id)
) partition by list (queue_id);

-- Claiming walks this index from its head. Jobs that wait for their time are not in it, however many they are.
create index job_ready on pgjq.job (queue_id, rank, seq) where ready;
-- Promotion walks this one from the past to now.
create index job_waiting on pgjq.job (run_at) where not ready and not held and state <> 1;
-- Reaping walks this one from the past to now.
create index job_lease on pgjq.job (locked_until) where state = 1;

-- Jobs that will be tried again, for people: the next one first. Written so that no other statement can use it: with a
-- table that it knows nothing about, the planner took an index like this one for the better way to a single key.
create index job_failing on pgjq.job (run_at) where state - 2 = 0;

-- The policies, all in one: what a policy allows once for each key has a place in this index, and where it allows many
-- the place is null, which is never taken. No key is a key of its own: it counts as the empty one, which is nobody's.
create unique index job_place on pgjq.job (queue_id, coalesce(singleton_key, ''), pgjq.place(queue_id, state))
where (queue_id & 7) > 0;
-- The jobs of a key that are due, the held ones apart: who comes first, and who comes next.
create index job_turn on pgjq.job (queue_id, coalesce(singleton_key, ''), held, rank, seq)
where (queue_id & 7) in (2, 3, 5) and (ready or held);
-- The line of a key in strict order: its head is the only one that may run.
create index job_line on pgjq.job (queue_id, coalesce(singleton_key, ''), seq) where (queue_id & 7) = 5;

create table pgjq.done (
    seq bigint not null,
    finished_at timestamptz not null,
    expires_at timestamptz not null,            -- until then the result can be read and the id is taken
    started_at timestamptz,
    delete_at timestamptz,                      -- when the record goes; null: never
    -- The transaction that ended it, for those who read on from an ending. A plain number: BRIN knows no xid8.
    xid bigint not null default pg_current_xact_id()::text::bigint,
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
-- What ended of late, for people. Rows come in this order and ranges of pages are all that is noted, so it costs those
-- who settle next to nothing. What is not summed up yet is the newest, and is read.
create index done_finished on pgjq.done using brin (finished_at) with (pages_per_range = 16, autosummarize = on);
-- Jobs that failed for good, for people: the newest first. Written as `job_failing` is.
create index done_failed on pgjq.done (finished_at) where state - 4 = 0 and not superseded;
-- Endings since a transaction: rows are appended, so blocks are in the order of transactions, nearly, and a summary of
-- every few of them is enough. It costs an insert next to nothing.
create index done_xid on pgjq.done using brin (xid) with (pages_per_range = 16, autosummarize = on);
-- Keys in strict order that a failed job blocks.
create index done_blocked on pgjq.done (queue_id, singleton_key)
where (queue_id & 7) = 5 and state = 4 and not superseded;

-- What only some jobs have: a checkpoint, the error of the last attempt, the workers that it stalled on.
create table pgjq.progress (
    seq bigint not null,
    queue_id integer not null,
    checkpoint bytea,
    error text,
    stalled_on text[] not null default '{}',    -- oldest first, the last twenty
    primary key (seq, queue_id)
) partition by list (queue_id);

-- Who has a time slot of a throttled key: one job for each queue, key and beginning of a slot.
create table pgjq.slot (
    queue_id integer not null,
    begins_at timestamptz not null,
    ends_at timestamptz not null,
    key text not null,
    seq bigint not null,
    primary key (queue_id, key, begins_at)
);

create index slot_ends on pgjq.slot (ends_at);

-- Writes of many jobs at once that have been made, so that none of them is made twice.
create table pgjq.bulk_write (
    id text not null,                           -- as its writer calls it
    batch bigint not null,                      -- of a stream, the number of its batch; else 0
    queue text not null,
    jobs bigint not null,                       -- that were added
    duplicates bigint not null,                 -- and that were not, because their ids or their places were taken
    at timestamptz not null default pgjq.now(),
    primary key (id, batch)
);

-- Bodies that such a write has committed before its jobs. The commit of the jobs takes the row away: one that stays is
-- of a writer that died in between, and says which bodies are nobody's.
create table pgjq.bulk_body (
    id text not null,
    batch bigint not null,
    queue_id integer not null,
    created_at timestamptz not null,            -- of every one of the bodies
    primary key (id, batch)
);

-- That queues with a number below 0 are not in here is written down as a constraint: then giving one its partitions
-- need not look through these. Strict order needs a key; that is said in the same constraint, and for partitions of
-- their own by `create_partitions`, because every further constraint costs every single enqueue some 7 µs: PostgreSQL
-- reads it from its text for each statement.
create table pgjq.body_default partition of pgjq.body (check (queue_id > 0)) default;
create table pgjq.job_default partition of pgjq.job (
    constraint job_needs_key check (queue_id > 0 and ((queue_id & 7) <> 5 or singleton_key is not null))
) default with (
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create table pgjq.done_default partition of pgjq.done (check (queue_id > 0)) default;
create table pgjq.progress_default partition of pgjq.progress (check (queue_id > 0)) default;

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
