-- Schedules: create, pause and delete them from SQL.
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
