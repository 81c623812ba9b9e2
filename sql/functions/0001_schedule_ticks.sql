-- Ticks of schedules: find the schedules that are due, and make their jobs.

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
language sql stable
return to_char($1 at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
|| case when extract(microseconds from $1)::bigint % 1000000 = 0 then '' else to_char($1 at time zone 'UTC', '.US') end
|| 'Z';

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

-- Why a queue refused a job, in words.
create function pgjq.refusal(status text, state smallint) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case $1
        when 'needs_key' then 'the queue is in strict order: every job needs a singleton_key'
        when 'no_dead_letter' then 'there is no such queue for dead letters'
        else 'a job of this id or key is ' || coalesce((
            array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled']
        )[$2 + 1], 'there')
    end
$$;

-- The settings of a schedule's job, due at once or at `run_at`, as `pgjq.add_jobs` reads them.
create function pgjq.run_settings(settings jsonb, run_at timestamptz) returns jsonb
language sql immutable
return ($1 - '{source,checked,delay,run_at}'::text[])
|| case when $2 is null then '{}' else jsonb_build_object('run_at', $2) end;

-- Make one job of a schedule; return why the queue refused it, or null. An error of a kind that may pass is raised.
create function pgjq.make_run(there pgjq.schedule, job_id text, run_at timestamptz, seq bigint) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    given constant jsonb := pgjq.run_settings(there.settings, run_at);
    answer record;
begin
    if not pgjq.is_valid_job(job_id, given) then
        return 'invalid job id or settings';
    end if;
    select e.status, e.state into answer
    from pgjq.add_jobs(there.queue, array[job_id], array[there.payload], given, null, array[seq]) as e;
    return case when answer.status is not null then pgjq.refusal(answer.status, answer.state) end;
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
    there.jobs := array(select j.seq from pgjq.job as j where j.seq = any(there.jobs) order by j.seq);
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

-- The plans of workers as rows, with their first tick. A single one makes one job that nothing forbids: so the plans of
-- a queue's schedules can be applied together.
create function pgjq.read_plans(plans jsonb) returns table (
    name text, revision integer, ticks jsonb, forced text, next_run_at timestamptz, error text, settings jsonb,
    tick timestamptz, run_at timestamptz, is_single boolean
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select
        p.*, t.tick, t.run_at,
        p.forced is null and p.error is null and jsonb_array_length(p.ticks) = 1 and t.outcome is null
        and t.suffix is null
    from jsonb_to_recordset($1) as p (
        name text, revision integer, ticks jsonb, forced text, next_run_at timestamptz, error text, settings jsonb
    )
    cross join lateral jsonb_to_record(coalesce(p.ticks -> 0, '{}'))
        as t (tick timestamptz, run_at timestamptz, outcome text, suffix text)
$$;

-- Apply the single plans of schedules of one queue, whose rows are locked, and return their ticks. It returns none, and
-- has made none, if one of the jobs lacks what the queue asks of it. A third of the server's time of one by one.
create function pgjq.apply_single_plans(queue text, names text[], plans jsonb)
returns table (schedule text, at timestamptz, ticks jsonb)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    jobs record;
    answer record;
    refused text[] := array_fill(null::text, array[cardinality(names)]);
begin
    select
        array_agg(r.name) as names, array_agg(r.seq) as seqs, array_agg(r.id) as ids, array_agg(r.payload) as payloads,
        array_agg(r.tick) as ticks, array_agg(r.next_run_at) as next_runs, array_agg(r.settings) as settings,
        array_agg(r.given) as given, count(distinct r.given) = 1 as are_alike
    into jobs
    from (
        select
            s.name, s.payload, p.tick, p.next_run_at, nextval('pgjq.job_seq') as seq,
            s.name || '@' || pgjq.tick_name(p.tick) as id, coalesce(s.settings, p.settings) as settings,
            pgjq.run_settings(coalesce(s.settings, p.settings), p.run_at) as given
        from pgjq.read_plans(plans) as p
        inner join pgjq.schedule as s using (name)
        where s.name = any(names)
        order by s.name
    ) as r;
    for answer in
        select e.n, e.status, e.state from pgjq.add_jobs(
            queue, jobs.ids, jobs.payloads, case when jobs.are_alike then jobs.given[1] else '{}' end,
            case when not jobs.are_alike then jobs.given end, jobs.seqs
        ) as e
    loop
        if answer.status in ('needs_key', 'no_dead_letter') then -- Then no job of the batch was added.
            return;
        end if;
        refused[answer.n] := pgjq.refusal(answer.status, answer.state);
    end loop;

    return query
    with made as materialized (
        select
            s.id as schedule_id, s.name, s.ticks + 1 as n, d.seq, d.id, d.tick, d.next_run_at, d.settings, d.refusal,
            case when d.refusal is null then 'made' else 'refused' end as outcome,
            case when d.refusal is null then d.id end as job_id
        from unnest(jobs.names, jobs.seqs, jobs.ids, jobs.ticks, jobs.next_runs, jobs.settings, refused)
            as d (name, seq, id, tick, next_run_at, settings, refusal)
        inner join pgjq.schedule as s using (name)
    ),

    recorded as (
        insert into pgjq.schedule_tick (schedule_id, slot, n, tick, at, outcome, job_id, detail)
        select m.schedule_id, m.n % 100, m.n, m.tick, pgjq.now(), m.outcome, m.job_id, m.refusal from made as m
        on conflict (schedule_id, slot) do update
        set n = excluded.n, tick = excluded.tick, at = excluded.at, outcome = excluded.outcome,
            job_id = excluded.job_id, detail = excluded.detail
    ),

    moved as (
        update pgjq.schedule as s
        set
            next_run_at = m.next_run_at, due_at = m.next_run_at, error = null, settings = m.settings,
            last_run_at = case when m.refusal is null then m.tick else s.last_run_at end,
            last_job_id = coalesce(m.job_id, s.last_job_id),
            last_seq = case when m.refusal is null then m.seq else s.last_seq end,
            jobs = case when m.refusal is null then array(
                select l.seq
                from (select j.seq from pgjq.job as j where j.seq = any(s.jobs) order by j.seq desc limit 998) as l
                order by l.seq
            ) || m.seq else s.jobs end,
            revision = s.revision + 1, ticks = m.n
        from made as m
        where s.id = m.schedule_id
    )

    select m.name, pgjq.now(), jsonb_build_array(jsonb_build_object(
        'tick', m.tick, 'outcome', m.outcome, 'detail', m.refusal, 'job_id', m.job_id, 'id', m.id
    ))
    from made as m;
    if pgjq.has_subscribers() then
        perform pgjq.publish(array(
            select pgjq.event(
                'tick', queue, d.id, null, reason => case when d.refusal is null then 'made' else 'refused' end
            )
            from unnest(jobs.ids, refused) as d (id, refusal)
        ));
    end if;
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
    planned record;
    rest text[] := array(
        select s.name
        from pgjq.read_plans(plans) as p
        inner join pgjq.schedule as s using (name)
        where s.name = any(array(select n.name from jsonb_to_recordset(plans) as n (name text))) and s.revision = p.revision
        order by s.name
        for update of s skip locked
    );
begin
    for planned in
        select s.queue, array_agg(s.name) as names
        from pgjq.read_plans(plans) as p
        inner join pgjq.schedule as s using (name)
        where
            s.name = any(rest) and p.is_single and not pgjq.is_overlapping(s) and pgjq.is_valid_job(
                s.name || '@' || pgjq.tick_name(p.tick),
                pgjq.run_settings(coalesce(s.settings, p.settings), p.run_at)
            )
        group by s.queue having count(*) > 1
        order by s.queue
    loop
        begin
            return query select t.* from pgjq.apply_single_plans(planned.queue, planned.names, plans) as t;
            if found then
                rest := array(select r.name from unnest(rest) as r (name) where r.name <> all(planned.names));
            end if;
        exception
            when lock_not_available or deadlock_detected or serialization_failure then
                rest := array(select r.name from unnest(rest) as r (name) where r.name <> all(planned.names));
            when others then
                continue; -- One of them fails: each is applied by itself.
        end;
    end loop;
    for planned in
        select s as there, p.ticks, p.forced, p.next_run_at, p.error, p.settings
        from pgjq.read_plans(plans) as p
        inner join pgjq.schedule as s using (name)
        where s.name = any(rest)
        order by s.name
    loop
        begin
            return query
            select (planned.there).name, pgjq.now(), pgjq.apply_plan(
                planned.there, planned.ticks, planned.forced, planned.next_run_at, planned.error, planned.settings
            );
        exception when lock_not_available or deadlock_detected or serialization_failure then
            continue;
        end;
    end loop;
end
$$;
