-- What the web page keeps: the actions that people took on it, and statistics of each minute for a day.

-- One row for each action and queue. The row is written before the action; `count` is null until the action has ended.
create table pgjq.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default pgjq.now(),
    actor text not null,                        -- who acted, as the page's authentication named the person
    action text not null,                       -- retry, cancel, delete, pause, resume, redrive, …
    queue text not null,
    ids text[] not null default '{}',           -- the jobs that were meant
    count bigint                                -- how many changed
);

create index audit_at on pgjq.audit (at);

-- Endings of each minute by queue, and the backlog at its end. Only minutes in which a queue ended or had jobs.
create table pgjq.minute (
    at timestamptz not null,
    queue_id integer not null,
    completed integer not null,
    failed integer not null,
    cancelled integer not null,
    waited real,                                -- seconds from the enqueue to the last start: median of a sample
    ran real,                                   -- seconds of the last run: median of the same sample
    ready bigint not null,
    oldest real,                                -- age of the oldest job that was ready, in seconds
    primary key (at, queue_id)
);
