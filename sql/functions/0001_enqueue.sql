-- Enqueue from SQL.

-- Enqueue one job from SQL: `select pgjq.enqueue('mail', '{"to": "ann"}', id => 'welcome-7')`. A payload with a text
-- under `task` names a task: `select pgjq.enqueue('mail', '{"task": "receipt", "args": [7]}')`.
create function pgjq.enqueue(
    queue text, payload jsonb, id text default null, priority integer default 0, run_at timestamptz default null,
    delay double precision default null, result_ttl double precision default null, max_attempts integer default null,
    singleton_key text default null, singleton_seconds double precision default null,
    singleton_next_slot boolean default false, dead_letter text default null, headers jsonb default null,
    out job_id text, out status text, out existing_state text, out result bytea
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    refused record;
begin
    if queue is null or queue = '' or length(queue) > 128 or queue ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception 'a queue''s name must have 1 to 128 characters, and no control characters'
        using errcode = 'check_violation';
    end if;
    job_id := coalesce(id, gen_random_uuid()::text);
    if job_id = '' or length(job_id) > 512 then
        raise exception 'a job''s id must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if payload is null then
        raise exception 'payload must not be null; JSON''s null is ''null''::jsonb' using errcode = 'check_violation';
    end if;
    if singleton_key = '' or length(singleton_key) > 512 then
        raise exception 'singleton_key must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if run_at is not null and delay is not null then
        raise exception 'pass run_at or delay, not both' using errcode = 'check_violation';
    end if;
    -- NaN is greater than any number in PostgreSQL, so it fails the upper bounds, as infinity does.
    if delay < 0 or delay > 1.7e308 or result_ttl <= 0 or result_ttl > 1.7e308 then
        raise exception 'delay must be at least 0, result_ttl more than 0, both finite' using errcode = 'check_violation';
    end if;
    if max_attempts not between 1 and 32767 or priority not between -32767 and 32767 then
        raise exception 'max_attempts must be between 1 and 32767, priority between -32767 and 32767'
        using errcode = 'check_violation';
    end if;
    if run_at not between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00' then
        raise exception 'run_at must be between the years 2 and 9998' using errcode = 'check_violation';
    end if;
    if singleton_seconds < 1 or singleton_seconds > 1.7e308 then
        raise exception 'singleton_seconds must be at least 1, and finite' using errcode = 'check_violation';
    end if;
    if dead_letter = queue then
        raise exception 'a queue cannot be its own dead letter' using errcode = 'check_violation';
    end if;
    if not pgjq.are_valid_headers(headers) then
        raise exception 'headers must be an object with texts, 64 of them and 8192 bytes at most'
        using errcode = 'check_violation';
    end if;
    -- As for Python's callers, a century is the longest time and a microsecond the shortest.
    delay := case when delay is not null then least(delay, pgjq.max_seconds()) end;
    result_ttl := case when result_ttl is not null then least(greatest(result_ttl, 1e-6), pgjq.max_seconds()) end;
    singleton_seconds := case when singleton_seconds is not null then least(singleton_seconds, pgjq.max_seconds()) end;
    select e.status, e.state, e.result into refused
    from pgjq.add_jobs(
        queue, array[job_id], array[convert_to(payload::text, 'UTF8')], jsonb_strip_nulls(jsonb_build_object(
            'priority', priority, 'run_at', run_at, 'delay', delay, 'result_ttl', result_ttl,
            'max_attempts', max_attempts, 'singleton_key', singleton_key,
            'singleton_seconds', singleton_seconds, 'singleton_next_slot', nullif(singleton_next_slot, false),
            'options', case when dead_letter is not null then jsonb_build_object('dead_letter', dead_letter) end,
            'task', case when jsonb_typeof(payload -> 'task') = 'string'
                then pgjq.valid_task_name(payload ->> 'task') end,
            'headers', nullif(headers, '{}')
        ))
    ) as e;
    if refused.status = 'needs_key' then
        raise exception 'queue % is in strict order: every job needs a singleton_key', queue
        using errcode = 'check_violation';
    end if;
    if refused.status = 'no_dead_letter' then
        raise exception 'there is no queue % for dead letters; create it first', dead_letter using errcode = 'foreign_key_violation';
    end if;
    status := coalesce(refused.status, 'queued');
    existing_state := (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[refused.state + 1];
    result := refused.result;
end
$$;
