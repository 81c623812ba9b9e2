-- The values of a new job's rows: its own settings, else what its queue defines, else the defaults of
-- `pgjq/options.py`, which stand here once. Both functions are inlined into the statements that add jobs.

-- The options that a job keeps: its own, and those that it inherits. With `backoff`, which jobs of tasks have, it is
-- retried with backoff if neither says otherwise.
create function pgjq.job_options(settings jsonb, inherited jsonb) returns jsonb
language sql immutable
return case
    when settings ->> 'backoff' = 'true'
        then
            '{"retry_backoff": true}' || coalesce(inherited - 'retry_limit', '{}')
            || coalesce(nullif(settings -> 'options', 'null'), '{}')
    when inherited is null then settings -> 'options'
    else nullif((inherited - 'retry_limit') || coalesce(nullif(settings -> 'options', 'null'), '{}'), '{}')
end;

-- The columns of a job's row in `job` that depend on its settings.
create function pgjq.job_settings(settings jsonb, inherited jsonb, at timestamptz) returns table (
    run_at timestamptz, ready boolean, rank smallint, max_attempts smallint, result_ttl double precision,
    delete_after real, awaited boolean, singleton_key text
)
language sql stable rows 1
begin atomic
    select
        due.run_at, due.run_at <= $3,
        (-coalesce(($1 ->> 'priority')::smallint, 0))::smallint,
        coalesce(($1 ->> 'max_attempts')::smallint, (($2 ->> 'retry_limit')::smallint + 1)::smallint, 3::smallint),
        coalesce(($1 ->> 'result_ttl')::double precision, 3600),
        coalesce(($1 -> 'options' ->> 'delete_after_seconds')::real, ($2 ->> 'delete_after_seconds')::real, 604800),
        coalesce(($1 ->> 'awaited')::boolean, false), $1 ->> 'singleton_key'
    from (
        select coalesce(
            ($1 ->> 'run_at')::timestamptz,
            $3 + make_interval(secs => coalesce(($1 ->> 'delay')::double precision, 0))
        ) as run_at
    ) as due;
end;
