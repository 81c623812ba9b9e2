-- Schedules: create them from SQL, find those that are due, and make their jobs.
--
-- Workers compute times, in Python: SQL stores a schedule, and the next worker plans its first run. Each change
-- notifies the workers, whether or not one listens: changes are rare, and so no worker needs to poll for them.

-- Have every worker look at the schedules.
create function pgjq.wake_schedules() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pg_notify('pgjq.schedules', '')
$$;

-- Create a schedule; its name must be free. A worker checks cron and time zone: the view `schedules` has its error.
--
-- select pgjq.create_schedule('nightly', 'imports', '{"shop": 7}', cron => '0 3 * * *', timezone => 'Europe/Berlin');
create function pgjq.create_schedule(
    name text, queue text, payload jsonb default null, cron text default null, every double precision default null,
    timezone text default 'UTC', start_at timestamptz default null, end_at timestamptz default null,
    missed text default 'once', overlap text default 'allow', jitter double precision default 0,
    starting_deadline double precision default null, job_options jsonb default '{}'
) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    insert into pgjq.schedule (
        name, queue, payload, task, cron, every, timezone, start_at, end_at, missed, overlap, jitter, starting_deadline,
        options, due_at
    )
    values (
        name, queue, convert_to(coalesce(payload, 'null')::text, 'UTF8'),
        case when jsonb_typeof(payload -> 'task') = 'string' then pgjq.valid_task_name(payload ->> 'task') end,
        cron, every, timezone, start_at, end_at, missed, overlap, jitter, starting_deadline, coalesce(job_options, '{}'), pgjq.now()
    );
    perform pgjq.wake_schedules();
    return name;
exception
    when unique_violation then
        raise exception 'schedule % exists', name
        using errcode = 'unique_violation', hint = 'delete it first, or change it with update_schedule';
end
$$;

-- Pause or resume a schedule; return whether it exists. A worker plans the next run of a resumed one from now on.
create function pgjq.pause_schedule(name text, paused boolean default true) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    update pgjq.schedule as s
    set
        paused = pause_schedule.paused, revision = s.revision + 1,
        next_run_at = case when s.paused and not pause_schedule.paused then null else s.next_run_at end,
        due_at = case when s.paused and not pause_schedule.paused then pgjq.now() else s.due_at end
    where s.name = pause_schedule.name;
    perform pgjq.wake_schedules();
    return found;
end
$$;

-- Resume a paused schedule; return whether it exists.
create function pgjq.resume_schedule(name text) returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pgjq.pause_schedule($1, false)
$$;

-- Delete a schedule; return whether it existed. Its jobs stay.
create function pgjq.delete_schedule(name text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from pgjq.schedule as s where s.name = delete_schedule.name;
    return found;
end
$$;

-- The schedules that a worker must look at now, the longest due first. Rows that another worker is ticking are skipped:
-- so several workers share the ticks of one second. Index: schedule_due, from the past to now.
create function pgjq.due_schedules(most integer) returns setof pgjq.schedule
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select s.* from pgjq.schedule as s
    where s.due_at <= pgjq.now()
    order by s.due_at limit most
    for update skip locked;
end
$$;

-- A tick as it stands in a job's id: 2026-11-17T03:00:00Z.
create function pgjq.tick_name(tick timestamptz) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select to_char(t.utc, 'YYYY-MM-DD"T"HH24:MI:SS')
        || case when extract(microseconds from t.utc)::bigint % 1000000 = 0 then '' else to_char(t.utc, '.US') end || 'Z'
    from (select $1 at time zone 'UTC' as utc) as t
$$;

-- Whether `overlap` forbids another job of a schedule now. Index: the primary key of job.
create function pgjq.is_overlapping(there pgjq.schedule) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return case there.overlap
        when 'skip' then exists (select from pgjq.job as j where j.seq = there.last_seq)
        when 'queue_one' then exists (
            select from pgjq.job as j where j.seq = any(there.jobs) and j.state in (0, 2)
        )
        else false
    end;
end
$$;

-- Make one job of a schedule; return why the queue refused it, or null. An error of a kind that may pass is raised.
create function pgjq.make_run(there pgjq.schedule, job_id text, run_at timestamptz, seq bigint) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    given constant jsonb := there.settings - '{source,checked,delay,run_at}'::text[]
    || case when run_at is null then '{}' else jsonb_build_object('run_at', run_at) end;
    answer record;
begin
    if not pgjq.is_valid_job(job_id, given) then
        return 'invalid job id or settings';
    end if;
    select e.status, e.state into answer
    from pgjq.add_jobs(there.queue, array[job_id], array[there.payload], given, null, array[seq]) as e;
    return case
        when answer.status is null then null
        when answer.status = 'needs_key' then 'the queue is in strict order: every job needs a singleton_key'
        when answer.status = 'no_dead_letter' then 'there is no such queue for dead letters'
        else 'a job of this id or key is ' || coalesce((
            array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled']
        )[answer.state + 1], 'there')
    end;
exception
    when lock_not_available or deadlock_detected or serialization_failure then
        raise;
    when others then
        return sqlerrm;
end
$$;

-- Record ticks of a schedule: the last hundred stay.
create function pgjq.record_ticks(there pgjq.schedule, recorded jsonb) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    insert into pgjq.schedule_tick (schedule_id, slot, n, tick, at, outcome, job_id, detail)
    select there.id, n.n % 100, n.n, t.tick, pgjq.now(), t.outcome, t.job_id, t.detail
    from jsonb_array_elements(recorded) with ordinality as e (value, place)
    cross join lateral (select there.ticks + e.place as n) as n
    cross join lateral jsonb_to_record(e.value) as t (tick timestamptz, outcome text, job_id text, detail text)
    where e.place > jsonb_array_length(recorded) - 100
    on conflict (schedule_id, slot) do update
    set n = excluded.n, tick = excluded.tick, at = excluded.at, outcome = excluded.outcome,
        job_id = excluded.job_id, detail = excluded.detail
$$;

-- Apply the plan of one schedule, whose row is locked; return its ticks with their outcomes.
create function pgjq.apply_plan(
    there pgjq.schedule, planned jsonb, forced text, next_run_at timestamptz, error text, settings jsonb
) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    recorded jsonb := '[]';
    one record;
    refusal text;
    given bigint;
begin
    there.settings := coalesce(there.settings, settings);
    if there.overlap = 'queue_one' then
        there.jobs := array(select j.seq from pgjq.job as j where j.seq = any(there.jobs));
    end if;
    for one in
        select
            t.tick, t.run_at, t.outcome, t.detail,
            there.name || '@' || pgjq.tick_name(t.tick) || coalesce(t.suffix, '') as id
        from jsonb_array_elements(planned) with ordinality as e (value, n)
        cross join lateral jsonb_to_record(e.value)
            as t (tick timestamptz, run_at timestamptz, outcome text, detail text, suffix text)
        order by e.n
    loop
        if one.outcome is null and forced is null and pgjq.is_overlapping(there) then
            one.outcome := 'overlapped';
            one.detail := case there.overlap
                when 'skip' then there.last_job_id || ' is live' else 'one of its jobs is queued or failing'
            end;
        elsif one.outcome is null then
            given := nextval('pgjq.job_seq');
            refusal := pgjq.make_run(there, one.id, one.run_at, given);
            one.outcome := case when refusal is null then coalesce(forced, 'made') else 'refused' end;
            one.detail := refusal;
            if refusal is null then
                there.last_run_at := one.tick;
                there.last_job_id := one.id;
                there.last_seq := given;
                there.jobs := (there.jobs || given)[greatest(cardinality(there.jobs) - 998, 1):];
            end if;
        end if;
        recorded := recorded || jsonb_build_object(
            'tick', one.tick, 'outcome', one.outcome, 'detail', one.detail,
            'job_id', case when one.outcome in ('made', 'triggered', 'backfilled') then one.id end, 'id', one.id
        );
    end loop;
    perform pgjq.record_ticks(there, recorded);
    update pgjq.schedule as s
    set
        next_run_at = case when forced is null then apply_plan.next_run_at else s.next_run_at end,
        due_at = case when forced is null then apply_plan.next_run_at else s.due_at end,
        error = case when forced is null then apply_plan.error else s.error end,
        settings = there.settings, last_run_at = there.last_run_at, last_job_id = there.last_job_id,
        last_seq = there.last_seq, jobs = there.jobs, revision = s.revision + 1,
        ticks = s.ticks + jsonb_array_length(recorded)
    where s.id = there.id;
    if pgjq.has_subscribers() then
        perform pgjq.publish(array(
            select pgjq.event('tick', there.queue, r.value ->> 'id', null, reason => r.value ->> 'outcome')
            from jsonb_array_elements(recorded) as r (value)
        ));
    end if;
    return recorded;
end
$$;

-- Apply the plans of workers: for each schedule that has not changed since it was read, make its jobs and set its next
-- run, or neither. Returns the applied ones. A schedule that another transaction has locked, or whose queue is locked,
-- is left for later. Rows are locked in the order of their names.
--
-- A plan names no queue and no payload: a worker that may tick cannot make other jobs than the schedule's.
create function pgjq.tick(plans jsonb) returns table (schedule text, at timestamptz, ticks jsonb)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    plan record;
    there pgjq.schedule;
begin
    for plan in
        select p.*
        from jsonb_to_recordset(plans) as p (
            name text, revision integer, ticks jsonb, forced text, next_run_at timestamptz, error text, settings jsonb
        )
        order by p.name
    loop
        select s.* into there from pgjq.schedule as s
        where s.name = plan.name and s.revision = plan.revision
        for update skip locked;
        continue when not found;
        begin
            return query
            select there.name, pgjq.now(), pgjq.apply_plan(
                there, plan.ticks, plan.forced, plan.next_run_at, plan.error, plan.settings
            );
        exception when lock_not_available or deadlock_detected or serialization_failure then
            continue;
        end;
    end loop;
end
$$;
