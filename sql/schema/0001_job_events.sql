-- State changes of jobs, one row each, while they are recorded: `pgjq.record_events`. Payloads are not copied; readers
-- look up names and errors by the job's number. Maintenance deletes rows after seven days.
create table pgjq.job_event (
    n bigint generated always as identity primary key,
    -- The transaction that made the change, as in `done`: readers continue from there.
    xid bigint not null default pg_current_xact_id()::text::bigint,
    at timestamptz not null default pgjq.now(),
    seq bigint not null,
    queue_id integer not null,
    run integer not null,                       -- the lease number of the job's current or last run; 0: it has not run
    worker_id integer,                          -- of that run
    attempts smallint not null,
    state smallint not null,                    -- after the change, as in `job` and `done`
    name text not null                          -- queued, started, retried, stalled, ended, cancelled
);

-- Rows are appended, so a summary of every few pages is enough.
create index job_event_xid on pgjq.job_event using brin (xid) with (pages_per_range = 16, autosummarize = on);
create index job_event_at on pgjq.job_event using brin (at) with (pages_per_range = 16, autosummarize = on);
