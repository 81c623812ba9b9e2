-- What producers leave beside jobs: reserved numbers, time slots, bulk writes.

-- Numbers that a transaction has drawn for jobs that it enqueues in several calls. No other transaction can use them.
create table pgjq.reservation (
    xid xid8 not null default pg_current_xact_id(),
    seqs int8multirange not null
);

-- The holders of time slots of throttled keys: one job for each queue, key and beginning of a slot.
create table pgjq.time_slot (
    queue_id integer not null,
    begins_at timestamptz not null,
    ends_at timestamptz not null,
    key text not null,
    seq bigint not null,
    primary key (queue_id, key, begins_at)
);

create index time_slot_ends on pgjq.time_slot (ends_at);

-- Bulk writes that have been made, so that none is made twice.
create table pgjq.bulk_write (
    id text not null,                           -- chosen by the writer
    batch bigint not null,                      -- number of the batch of a stream; else 0
    queue text not null,
    jobs bigint not null,                       -- that were added
    duplicates bigint not null,                 -- not added, because their ids or their slots were taken
    quarantined bigint not null default 0,      -- rows that could not be jobs
    at timestamptz not null default pgjq.now(),
    primary key (id, batch)
);

-- Rows of bulk writes that could not be jobs, and why. Maintenance deletes them after thirty days.
create table pgjq.quarantine (
    at timestamptz not null default pgjq.now(),
    write_id text not null,
    batch bigint not null,
    queue text not null,
    id text,
    payload text,                               -- its beginning, as the writer got it
    reason text not null
);

create index quarantine_at on pgjq.quarantine (at);

-- Bodies that a bulk write has committed before their jobs. The commit of the jobs deletes the row: a row that stays
-- belongs to a writer that died in between, and tells which bodies have no jobs.
create table pgjq.bulk_body (
    id text not null,
    batch bigint not null,
    queue_id integer not null,
    created_at timestamptz not null,            -- of each of the bodies
    primary key (id, batch)
);
