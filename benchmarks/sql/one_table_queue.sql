-- The least that is a queue in one table: an id is there once, and the next job is found by an index.
create table one_table_queue (
    seq bigint generated always as identity primary key,
    queue text not null default 'bench',
    id text not null,
    payload text not null,
    priority integer not null,
    run_at timestamptz not null default now(),
    state text not null default 'queued',
    attempts integer not null default 0,
    unique (queue, id)
);
create index one_table_queue_next on one_table_queue (queue, priority desc, seq) where state = 'queued';
create table one_table_heap (id text not null, payload text not null, priority integer not null)
