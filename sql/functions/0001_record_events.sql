-- Recorded state changes: rows that triggers add to `job_event`, in the transactions that make the changes.
--
-- Triggers, because they see every change, also one that is made by hand, and because there are none until a user wants
-- the events: without them, enqueueing, claiming and settling cost the same as before.

-- Record what a statement has changed. It runs with the rights of the schema's owner, because workers may renew leases
-- by an update of their own.
create function pgjq.record_changes() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_argv[0] = 'ended' then
        insert into pgjq.job_event (seq, queue_id, run, worker_id, attempts, state, name)
        select e.seq, e.queue_id, e.lease, e.worker_id, e.attempts, e.state,
            case e.state when 5 then 'cancelled' else 'ended' end
        from new_rows as e;
    elsif tg_op = 'INSERT' then
        insert into pgjq.job_event (seq, queue_id, run, attempts, state, name)
        select e.seq, e.queue_id, e.lease, e.attempts, e.state, 'queued' from new_rows as e;
    else
        insert into pgjq.job_event (seq, queue_id, run, worker_id, attempts, state, name)
        select
            e.seq, e.queue_id, e.lease, coalesce(e.worker_id, o.worker_id), e.attempts, e.state,
            case
                when e.lease > o.lease then 'started'
                when e.stalled > o.stalled then 'stalled'
                -- A run that was given back does not count as an attempt.
                when e.attempts < o.attempts or e.state = 0 then 'queued'
                else 'retried'
            end
        from new_rows as e
        inner join old_rows as o on e.seq = o.seq and e.queue_id = o.queue_id
        where e.lease > o.lease or e.stalled > o.stalled or e.state <> o.state;
    end if;
    return null;
end
$$;

-- Are state changes recorded?
create function pgjq.are_events_recorded() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists(
        select from pg_trigger as t where t.tgrelid = regclass('pgjq.job') and t.tgname = 'pgjq_record_update'
    )
$$;

-- Begin or end the recording of state changes. Changes before are not known to it. For the schema's owner.
--
-- Statements on a partitioned table fire its own triggers, and those on a partition the partition's: enqueueing and
-- claiming name the default partitions.
create function pgjq.record_events(wanted boolean) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    own_schema constant text := pgjq.schema_name();
    place text;
begin
    if wanted is not distinct from pgjq.are_events_recorded() then
        return;
    end if;
    foreach place in array array['job', 'job_default', 'done', 'done_default'] loop
        if not wanted then
            execute format('drop trigger pgjq_record_insert on %s.%I', own_schema, place);
            execute format('drop trigger if exists pgjq_record_update on %s.%I', own_schema, place);
            continue;
        end if;
        execute format(
            'create trigger pgjq_record_insert after insert on %1$s.%2$I referencing new table as new_rows
            for each statement execute function %1$s.record_changes(%3$L)',
            own_schema, place, case when starts_with(place, 'done') then 'ended' else 'live' end
        );
        if starts_with(place, 'job') then
            execute format(
                'create trigger pgjq_record_update after update on %1$s.%2$I
                referencing old table as old_rows new table as new_rows
                for each statement execute function %1$s.record_changes(''live'')', own_schema, place
            );
        end if;
    end loop;
end
$$;
