-- Options of jobs and of queue definitions: their bounds, and what they mean.

-- Whether options of a job, or of a queue's definition, are within the bounds of `pgjq/options.py`: a duration is 0,
-- where that is allowed, or from a microsecond to a century. Compared as exact numbers, so that every accepted value
-- can be read as double precision and as real: 1e-400 is more than 0, but out of range for both. The number in the path
-- is `pgjq.max_seconds()`; a path cannot call a function.
create function pgjq.are_valid_options(options jsonb) returns boolean
language sql immutable
return jsonb_typeof(options) = 'object' and not options @? '$.keyvalue() ? (!(
    @.value.type() == "number" && @.value <= 3155760000 && (
        @.key == "heartbeat_seconds" && @.value >= 10
        || (@.key == "expire_in_seconds" || @.key == "retention_seconds") && @.value >= 1
        || (@.key == "retry_delay" || @.key == "retry_delay_max" || @.key == "delete_after_seconds")
            && (@.value == 0 || @.value >= 0.000001)
    )
    || @.key == "retry_backoff" && @.value.type() == "boolean"
    || @.key == "dead_letter" && @.value.type() == "string"
))';

-- Whether headers of a job are within the bounds of `pgjq/options.py`: texts by name, 64 of them and 8 KiB at most.
create function pgjq.are_valid_headers(headers jsonb) returns boolean
language sql immutable
return jsonb_typeof(headers) = 'object' and not headers @? '$.keyvalue() ? (@.value.type() != "string" || @.key == "")'
and (
    select count(*) <= 64 and coalesce(sum(octet_length(h.key) + octet_length(h.value)), 0) <= 8192
    from jsonb_each_text(case when jsonb_typeof(headers) = 'object' then headers else '{}' end) as h
);

-- Return the name of a task if it may be one, else null: `pgjq.job.is_task_name` in SQL.
create function pgjq.valid_task_name(name text) returns text
language sql immutable
return case when length(name) between 1 and 128 and name !~ '[\u0001-\u001f\u007f-\u009f]' then name end;

-- Whether a job's id and settings are within the bounds of `pgjq/options.py`. Claims, reapers and pruning compute with
-- the times of every job: one invalid time would fail them all.
--
-- Not a constraint of the tables, because PostgreSQL prepares each constraint for every statement, and a single enqueue
-- took half as long again. `pgjq.fail_invalid_jobs` handles rows that were written in another way.
--
-- `case` and not `or` before the two functions: `null or f(null)` calls `f`, and the planner cannot inline
-- `are_valid_headers`, so that each job without headers started an executor, a tenth of a single enqueue.
create function pgjq.is_valid_job(id text, settings jsonb) returns boolean
language sql stable
return length(id) between 1 and 512 and (
    settings is null or (
        coalesce((settings ->> 'result_ttl')::double precision between 1e-6 and pgjq.max_seconds(), true)
        and coalesce((settings ->> 'delay')::double precision between 0 and pgjq.max_seconds(), true)
        and coalesce(
            (settings ->> 'run_at')::timestamptz
            between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00', true
        )
        and coalesce((settings ->> 'priority')::integer between -32767 and 32767, true)
        and coalesce((settings ->> 'max_attempts')::integer between 1 and 32767, true)
        and coalesce((settings ->> 'singleton_seconds')::double precision between 1 and pgjq.max_seconds(), true)
        and coalesce(length(settings ->> 'singleton_key') between 1 and 512, true)
        and case
            when coalesce(jsonb_typeof(settings -> 'options'), 'null') = 'null' then true
            else pgjq.are_valid_options(settings -> 'options')
        end
        and (settings ->> 'task' is null or pgjq.valid_task_name(settings ->> 'task') is not null)
        and case
            when coalesce(jsonb_typeof(settings -> 'headers'), 'null') = 'null' then true
            else pgjq.are_valid_headers(settings -> 'headers')
        end
    )
);

-- Refuse options of a definition outside of the bounds of `pgjq/options.py`: its jobs inherit them.
create function pgjq.check_definition(options jsonb) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not (
        pgjq.are_valid_options(options - 'retry_limit') and coalesce(
            jsonb_typeof(options -> 'retry_limit') = 'number'
            and (options -> 'retry_limit')::numeric between 0 and 32766
            and (options -> 'retry_limit')::numeric % 1 = 0, not options ? 'retry_limit'
        )
    ) then
        raise exception 'a setting of the queue is unknown, or out of bounds: %', options
        using errcode = 'check_violation', hint = 'the bounds are in docs/queues.md';
    end if;
end
$$;

-- Find the jobs of a batch that the queue cannot accept: in strict order without a key, or with a missing dead letter
-- queue. They are returned and not raised, so that the caller's transaction stays usable.
create function pgjq.find_invalid_jobs(this_queue integer, common jsonb, own jsonb[], ids text[])
returns table (n bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select w.n, w.status
    from unnest(ids, own) with ordinality as g (id, own, n)
    cross join lateral (select common || coalesce(g.own, '{}') as s) as j
    cross join lateral (
        select g.n, case
            when pgjq.is_strict(this_queue) and j.s ->> 'singleton_key' is null then 'needs_key'
            when not exists (select from pgjq.queue as q where q.name = j.s -> 'options' ->> 'dead_letter')
                and j.s -> 'options' ->> 'dead_letter' is not null then 'no_dead_letter'
        end as status
    ) as w
    where w.status is not null
$$;

-- Seconds before the retry-th retry (1, 2, …) of a job with these options: `pgjq.retry.retry_delay` in SQL.
create function pgjq.retry_delay(options jsonb, retry integer) returns double precision
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case
        when options is null then 0
        when not coalesce((options ->> 'retry_backoff')::boolean, false)
            then coalesce((options ->> 'retry_delay')::double precision, 0)
        else least(
            (options ->> 'retry_delay_max')::double precision,
            pgjq.max_seconds(),
            coalesce(nullif((options ->> 'retry_delay')::double precision, 0), 1)
            * (power(2, least(16, retry)) / 2 + power(2, least(16, retry)) / 2 * random())
        )
    end
$$;
