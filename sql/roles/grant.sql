-- The five roles and their rights: docs/roles.md has the table. They cannot log in; logins become members of them.
--
-- The schema's owner may run this any number of times. It sets all rights anew: objects of a newer version get their
-- rights, and removed rights are revoked. CREATEROLE is needed only for roles that do not exist yet. In another schema
-- the roles carry that schema's name.
--
-- The roles change jobs only through functions, which run with the rights of the schema's owner. Each of these sets its
-- search_path, so that no object of a caller can replace another; no role may call the other functions. Partitions need
-- no rights of their own, because all access goes through their parent tables.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['pgjq_producer', 'pgjq_worker', 'pgjq_monitor', 'pgjq_spark', 'pgjq_admin'] loop
        continue when exists (select from pg_catalog.pg_roles as r where r.rolname = wanted);
        begin
            execute format('create role %I nologin', wanted);
        exception
            when duplicate_object or unique_violation then
                null;  -- A session in another database of this server has created it meanwhile.
            when insufficient_privilege then
                raise exception 'role % does not exist and this login lacks CREATEROLE: migrate with a login that has it, '
                    'or have an administrator create the five roles first (docs/roles.md)', wanted
                using errcode = 'insufficient_privilege';
        end;
    end loop;
end
$$;

-- By default every role may call a function.
revoke all on all functions in schema pgjq from public, pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark,
pgjq_admin;
revoke all on all tables in schema pgjq from pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark,
pgjq_admin;
revoke all on all sequences in schema pgjq from pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark,
pgjq_admin;

grant usage on schema pgjq to pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark,
pgjq_admin;
-- Users of the tables and views need these as well.
grant execute on function pgjq.schema_version, pgjq.now, pgjq.policy, pgjq.has_policy, pgjq.limits_keys,
pgjq.limits_queued, pgjq.is_serial, pgjq.may_lack_slot, pgjq.is_stately, pgjq.is_strict, pgjq.policy_slot
to pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark,
pgjq_admin;

-- Producers: add jobs, and read a job whose queue and id they know.
alter function pgjq.enqueue security definer;
alter function pgjq.enqueue_job security definer;
alter function pgjq.enqueue_jobs security definer;
alter function pgjq.reserve_numbers security definer;
alter function pgjq.get_jobs security definer;
alter function pgjq.get_attempts security definer;
alter function pgjq.job_state security definer;
alter function pgjq.mark_awaited security definer;
grant execute on function
pgjq.enqueue, pgjq.enqueue_job, pgjq.enqueue_jobs, pgjq.reserve_numbers, pgjq.get_jobs, pgjq.get_attempts,
pgjq.job_state, pgjq.mark_awaited
to pgjq_producer, pgjq_worker, pgjq_admin;

-- Workers and reapers: claim and settle jobs, take back stalled ones, and do the maintenance.
alter function pgjq.claim security definer;
alter function pgjq.find_claimed security definer;
alter function pgjq.seconds_until_work security definer;
alter function pgjq.settle security definer;
alter function pgjq.find_settled security definer;
alter function pgjq.save_checkpoint security definer;
alter function pgjq.reap security definer;
alter function pgjq.fail_invalid_jobs security definer;
alter function pgjq.prune_ended security definer;
alter function pgjq.prune_waiting security definer;
alter function pgjq.prune_workers security definer;
alter function pgjq.record_queue_stats security definer;
alter function pgjq.unblock_key_of_job security definer;
alter function pgjq.record_minutes security definer;
alter function pgjq.drop_old_stages security definer;
grant execute on function
pgjq.claim, pgjq.find_claimed, pgjq.settle, pgjq.find_settled, pgjq.save_checkpoint, pgjq.reap, pgjq.fail_invalid_jobs,
pgjq.prune_ended, pgjq.prune_waiting, pgjq.prune_workers, pgjq.record_queue_stats, pgjq.unblock_key_of_job,
pgjq.record_minutes, pgjq.drop_old_stages, pgjq.seconds_until_work, pgjq.must_wake,
pgjq.wake, pgjq.has_uncommitted_jobs, pgjq.has_subscribers, pgjq.event, pgjq.notification_pages, pgjq.publish
to pgjq_worker, pgjq_admin;
grant select (id, name, paused) on pgjq.queue to pgjq_worker;
grant select (id, name, last_seen, prune_at), insert (name), update (last_seen, prune_at) on pgjq.worker to pgjq_worker;
grant select (id), insert (id, worker_id, queues, heartbeat), update (last_seen), delete
on pgjq.registration to pgjq_worker;
grant select on pgjq.workers to pgjq_worker;
grant
select (
    seq, queue_id, state, ready, blocked, run_at, worker_id, lease, lease_seconds, locked_until, expire_at,
    cancel_requested
),
update (locked_until)
on pgjq.job to pgjq_worker;
grant select (ends_at), delete on pgjq.time_slot to pgjq_worker;
-- They tick schedules, and add or change those of their decorators; a tick takes queue and payload from the schedule.
alter function pgjq.due_schedules security definer;
alter function pgjq.tick security definer;
grant execute on function pgjq.due_schedules, pgjq.tick, pgjq.wake_schedules to pgjq_worker, pgjq_admin;
grant select, insert, update on pgjq.schedule to pgjq_worker;
grant select on pgjq.schedules, pgjq.schedule_tick to pgjq_worker;

-- Spark: fill stages and make jobs of them. A stage belongs to the schema's owner; the login that created it may add
-- rows. The sequence is for these rows' numbers; its holder can draw numbers, and cannot set them.
alter function pgjq.create_stage security definer;
alter function pgjq.commit_write security definer;
alter function pgjq.drop_stages security definer;
alter function pgjq.remove_orphan_bodies security definer;
grant execute on function pgjq.create_stage, pgjq.commit_write, pgjq.drop_stages, pgjq.remove_orphan_bodies
to pgjq_spark, pgjq_admin;
grant usage on sequence pgjq.job_seq to pgjq_spark;
grant select on pgjq.bulk_write to pgjq_spark, pgjq_admin;
grant select on pgjq.quarantine, pgjq.job_event, pgjq.stream_row to pgjq_admin;
grant execute on function pgjq.are_events_recorded to pgjq_admin;

-- Monitors: read everything but payloads, results, checkpoints and errors in full. They change nothing but the totals
-- of endings, which an exporter of metrics counts.
grant select on
pgjq.backlog, pgjq.throughput, pgjq.running, pgjq.stalled, pgjq.failing, pgjq.failed, pgjq.blocked_keys, pgjq.workers,
pgjq.leaders, pgjq.table_health, pgjq.snapshots, pgjq.lock_waits, pgjq.queue, pgjq.worker, pgjq.registration, pgjq.job,
pgjq.time_slot, pgjq.schedules, pgjq.schedule_tick, pgjq.attempts
to pgjq_monitor, pgjq_admin;
grant select (id, name) on pgjq.schedule to pgjq_monitor;
grant select (seq, created_at, queue_id, superseded, id, task) on pgjq.body to pgjq_monitor;
grant select (
    seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, worker_id, rank, attempts, max_attempts,
    stalled, state, superseded, singleton_key
) on pgjq.done to pgjq_monitor;
grant select (seq, queue_id, stalled_on) on pgjq.progress to pgjq_monitor;
grant select (seq, queue_id, number, worker, started_at, ended_at, outcome) on pgjq.attempt to pgjq_monitor;
grant execute on function pgjq.error_excerpt, pgjq.error_place, pgjq.count_ready to pgjq_monitor, pgjq_admin;
alter function pgjq.describe_jobs security definer;
alter function pgjq.record_totals security definer;
alter function pgjq.totals security definer;
alter function pgjq.scale security definer;
grant execute on function pgjq.describe_jobs, pgjq.record_totals, pgjq.totals, pgjq.scale to pgjq_monitor, pgjq_admin;
grant select on pgjq.minute, pgjq.audit, pgjq.job_seq to pgjq_monitor, pgjq_admin;

-- Admins: all of that, and define queues; cancel, retry, delete and find jobs. The schema itself stays its owner's.
alter function pgjq.create_queue security definer;
alter function pgjq.update_queue security definer;
alter function pgjq.delete_queue security definer;
alter function pgjq.cancel_jobs security definer;
alter function pgjq.delete_jobs security definer;
alter function pgjq.retry_job security definer;
alter function pgjq.retry_jobs security definer;
alter function pgjq.redrive security definer;
alter function pgjq.release_running security definer;
alter function pgjq.reschedule_job security definer;
alter function pgjq.begin_action security definer;
alter function pgjq.end_action security definer;
alter function pgjq.create_schedule security definer;
alter function pgjq.pause_schedule security definer;
alter function pgjq.resume_schedule security definer;
alter function pgjq.delete_schedule security definer;
grant execute on function
pgjq.create_queue, pgjq.update_queue, pgjq.delete_queue, pgjq.cancel_jobs, pgjq.delete_jobs, pgjq.retry_job,
pgjq.retry_jobs, pgjq.redrive, pgjq.create_schedule, pgjq.pause_schedule, pgjq.resume_schedule, pgjq.delete_schedule,
pgjq.begin_action, pgjq.end_action, pgjq.release_running, pgjq.reschedule_job
to pgjq_admin;
grant select, insert, update, delete on
pgjq.queue, pgjq.worker, pgjq.registration, pgjq.body, pgjq.job, pgjq.done, pgjq.progress, pgjq.attempt, pgjq.time_slot,
pgjq.schedule
to pgjq_admin;
grant select on pgjq.jobs to pgjq_admin;
grant usage on sequence pgjq.job_seq, pgjq.queue_seq to pgjq_admin;
