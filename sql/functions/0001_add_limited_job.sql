-- Add jobs that a policy or a time slot may refuse.

-- Add one job that a policy or a time slot may refuse; return why it was not added.
--
-- All of it runs in a block that is rolled back if the job is refused: an id that was freed for it is then taken again.
-- It waits for a concurrent job with the same key or id, and the next round sees its result. With a snapshot as old as
-- the caller's transaction no round would: there the conflict is a serialization failure.
create function pgjq.add_limited_job(
    queue text, this_queue integer, given bigint, job_id text, job_payload bytea, settings jsonb
) returns table (status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    job_key constant text := coalesce(settings ->> 'singleton_key', '');
    slot record;
    refused smallint;
    plain jsonb := settings - '{singleton_seconds,singleton_next_slot}'::text[] || '{"checked": true}';
begin
    loop
        refused := null;
        begin
            return query
            select f.status, f.state, f.result
            from pgjq.free_id(this_queue, job_id, coalesce(settings ->> 'on_failed', 'enqueue') = 'enqueue') as f;
            if found then
                return;
            end if;
            select j.state into refused from pgjq.job as j
            where
                j.queue_id = this_queue and coalesce(j.singleton_key, '') = job_key and pgjq.limits_keys(j.queue_id)
                and pgjq.policy_slot(j.queue_id, j.state) = pgjq.policy_slot(this_queue, 0::smallint)
            limit 1;
            if refused is null and settings ->> 'singleton_seconds' is not null then
                slot := pgjq.take_time_slot(
                    this_queue, job_key, (settings ->> 'singleton_seconds')::double precision,
                    coalesce((settings ->> 'singleton_next_slot')::boolean, false), given
                );
                refused := case when slot.begins_at is null then slot.holder_state end;
                if slot.begins_at > pgjq.now() then
                    plain := plain || jsonb_build_object('run_at', greatest(
                        slot.begins_at, coalesce(
                            (settings ->> 'run_at')::timestamptz,
                            pgjq.now() + make_interval(secs => (settings ->> 'delay')::double precision)
                        )
                    ));
                end if;
            end if;
            if refused is null then
                perform from pgjq.add_jobs(queue, array[job_id], array[job_payload], plain, null, array[given]);
                if not found then
                    return;
                end if;
            end if;
            raise unique_violation;
        exception when unique_violation then
            if refused is not null then
                return query select 'duplicate', refused, null::bytea;
                return;
            end if;
            if current_setting('transaction_isolation') <> 'read committed' then
                raise exception 'could not serialize access: another job took the slot of this one''s key'
                using errcode = 'serialization_failure';
            end if;
        end;
    end loop;
end
$$;
