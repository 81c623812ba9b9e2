-- Jobs.
--
-- A job has two rows at a time: `body` is its identity and payload, and never moves; `job` is the narrow, fixed-width
-- row that changes while the job lives; `done` is its end. Finishing moves a row from `job` to `done` in one statement,
-- so a job is in exactly one of the two in every snapshot. One unique index on `body` reserves its id. Every table is
-- partitioned by queue, so that a queue can have partitions of its own; all other queues are in the default partition.

-- The order of jobs: assigned at the enqueue, never changed, and shared by all queues.
create sequence pgjq.job_seq;

-- Identities and payloads of jobs, live and ended. A row never changes, but for one mark when its id is used again.
create table pgjq.body (
    seq bigint not null,
    created_at timestamptz not null,
    queue_id integer not null,
    superseded boolean not null default false,  -- the id was free and was enqueued again as another row
    id text not null,
    payload bytea not null,
    options jsonb,                              -- only what was set, by the job or by its queue's definition
    source jsonb,                               -- the origin of a dead letter: queue, id, attempts, error
    task text,                                  -- the task that the payload names
    headers jsonb,                              -- text by name: metadata for middleware and tracing
    primary key (seq, queue_id)
) partition by list (queue_id);

create unique index body_id on pgjq.body (queue_id, id) where not superseded;

-- Jobs that have not ended: narrow rows that every claim, heartbeat and retry changes.
create table pgjq.job (
    seq bigint not null,
    run_at timestamptz not null,
    locked_until timestamptz,                   -- the earlier of lease and expiry; null: neither
    expire_at timestamptz,                      -- when this attempt has taken too long
    started_at timestamptz,
    claim_id bigint,                            -- of the claim that took it; finds the jobs of a lost answer
    result_ttl double precision not null,
    queue_id integer not null,
    lease integer not null default 0,           -- raised by every claim; the fence
    worker_id integer,
    lease_seconds real,                         -- what a heartbeat adds; set by the claim
    delete_after real not null,                 -- seconds that the record is kept after the end; 0: for ever
    rank smallint not null,                     -- minus priority, so that (rank, seq) ascends
    attempts smallint not null default 0,
    max_attempts smallint not null,
    stalled smallint not null default 0,
    max_stalled smallint,
    state smallint not null default 0,          -- 0 queued, 1 processing, 2 failing
    ready boolean not null,                     -- may be claimed now: due and not processing
    blocked boolean not null default false,     -- due, but blocked by another job of its key, which unblocks it
    requeue_exhausted boolean not null default false,
    cancel_requested boolean not null default false,
    awaited boolean not null default false,     -- a waiter wants a notification of its end
    singleton_key text,
    primary key (seq, queue_id)
) partition by list (queue_id);

-- Claims walk this index from its head. Delayed jobs are not in it, however many there are.
create index job_ready on pgjq.job (queue_id, rank, seq) where ready;
-- Promotion walks this one from the past to now.
create index job_waiting on pgjq.job (run_at) where not ready and not blocked and state <> 1;
-- Reaping walks this one from the past to now.
create index job_lease on pgjq.job (locked_until) where state = 1;

-- Jobs that will be tried again, for operators: the next one first. Written so that no other statement can use it:
-- without statistics the planner preferred an index like this one for finding a single key.
create index job_failing on pgjq.job (run_at) where state - 2 = 0;

-- Enforces all policies: a slot that a policy allows once per key is in this index; where it allows many, the slot is
-- null, which never conflicts. A job without a key counts under the empty key, which no job can have.
create unique index job_policy_slot
on pgjq.job (queue_id, coalesce(singleton_key, ''), pgjq.policy_slot(queue_id, state))
where pgjq.limits_keys(queue_id);
-- The due jobs of a key, blocked ones apart: which is first, and which is next.
create index job_key_due on pgjq.job (queue_id, coalesce(singleton_key, ''), blocked, rank, seq)
where pgjq.is_serial(queue_id) and (ready or blocked);
-- The order of a key in strict order: only its first job may run.
create index job_key_order on pgjq.job (queue_id, coalesce(singleton_key, ''), seq) where pgjq.is_strict(queue_id);

-- How jobs ended: state, result, error. Retention deletes these rows.
create table pgjq.done (
    seq bigint not null,
    finished_at timestamptz not null,
    expires_at timestamptz not null,            -- until then the result can be read and the id is taken
    started_at timestamptz,
    delete_at timestamptz,                      -- when the record is pruned; null: never
    -- The transaction that ended it, for readers that continue from an ending. A plain number: BRIN has no xid8.
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
-- Recent endings, for operators. Rows arrive in this order and only page ranges are indexed, so it costs a settlement
-- next to nothing. Page ranges without a summary are the newest, and are read.
create index done_finished on pgjq.done using brin (finished_at) with (pages_per_range = 16, autosummarize = on);
-- Jobs that failed for good, for operators: the newest first. Written as `job_failing` is.
create index done_failed on pgjq.done (finished_at) where state - 4 = 0 and not superseded;
-- Endings since a transaction: rows are appended, so pages are nearly in the order of transactions, and a summary of
-- every few pages is enough. It costs an insert next to nothing.
create index done_xid on pgjq.done using brin (xid) with (pages_per_range = 16, autosummarize = on);
-- Keys in strict order that a failed job blocks.
create index done_blocked on pgjq.done (queue_id, singleton_key)
where pgjq.is_strict(queue_id) and state = 4 and not superseded;

-- Data that only some jobs have: a checkpoint, the error of the last attempt, the workers that it stalled on.
create table pgjq.progress (
    seq bigint not null,
    queue_id integer not null,
    checkpoint bytea,
    error text,
    stalled_on text[] not null default '{}',    -- oldest first, the last twenty
    primary key (seq, queue_id)
) partition by list (queue_id);

-- Runs that ended in anything but completion. The completing run is the job's row in `done`, so a job that completes at
-- its first run has no row here. At most twenty of a job: the first, and the last nineteen.
create table pgjq.attempt (
    seq bigint not null,
    started_at timestamptz,
    ended_at timestamptz not null,
    queue_id integer not null,
    number integer not null,                    -- the run's lease: every claim raises it, so it counts the runs
    worker text,
    outcome text not null,                      -- failed, stalled, released, snoozed, expired, cancelled, lease_lost
    error text,                                 -- JSON, as in done
    primary key (seq, queue_id, number)
) partition by list (queue_id);

-- Recent attempts, for operators.
create index attempt_ended on pgjq.attempt (ended_at);

-- The default partitions exclude queue numbers below 0 by a constraint: then creating a queue's partitions need not
-- scan them. Strict order needs a key; the same constraint demands it, and `create_partitions` does for other
-- partitions, because every further constraint costs each single enqueue some 7 µs: PostgreSQL parses its text for each
-- statement. It would also inline `pgjq.is_strict` each time, for another 15 µs: so the condition is written out here.
create table pgjq.body_default partition of pgjq.body (check (queue_id > 0)) default;
create table pgjq.job_default partition of pgjq.job (
    constraint job_needs_key check (queue_id > 0 and ((queue_id & 7) <> 5 or singleton_key is not null))
) default with (
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create table pgjq.done_default partition of pgjq.done (check (queue_id > 0)) default;
create table pgjq.progress_default partition of pgjq.progress (check (queue_id > 0)) default;
create table pgjq.attempt_default partition of pgjq.attempt (check (queue_id > 0)) default;

-- Statistics of a queue are outdated at once: full one minute, empty the next. A plan made from them is right by luck
-- (a claim of 200 took 1.5 ms or 800 ms). So the planner gets none for the columns that change: it then assumes a fixed
-- share of the table, whose size it always knows, and walks the index that the statement was written for. It applies to
-- the partitions as well.
alter table pgjq.job alter column queue_id set statistics 0;
alter table pgjq.job alter column rank set statistics 0;
alter table pgjq.job alter column state set statistics 0;
alter table pgjq.job alter column ready set statistics 0;
alter table pgjq.job alter column lease set statistics 0;
alter table pgjq.job alter column run_at set statistics 0;
alter table pgjq.job alter column locked_until set statistics 0;
