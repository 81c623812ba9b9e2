-- Undo revision 0001: drop every job, record and function of pgjq in this schema. The schema itself stays.
select pgjq.drop_old_stages(-3600);
select pgjq.record_events(false);
select pgjq.drop_old_stages(-3600); -- It also deletes old rows of job_event.
drop view if exists pgjq.stream_row;
drop function if exists pgjq.record_events, pgjq.are_events_recorded, pgjq.record_changes;
drop table if exists pgjq.job_event;
drop view if exists pgjq.schedules;
drop function if exists pgjq.tick(jsonb);
drop function if exists pgjq.apply_single_plans(text, text[], jsonb);
drop function if exists pgjq.read_plans(jsonb);
drop function if exists pgjq.apply_plan(pgjq.schedule, jsonb, text, timestamptz, text, jsonb);
drop function if exists pgjq.record_ticks(pgjq.schedule, jsonb);
drop function if exists pgjq.make_run(pgjq.schedule, text, timestamptz, bigint);
drop function if exists pgjq.run_settings(jsonb, timestamptz);
drop function if exists pgjq.refusal(text, smallint);
drop function if exists pgjq.is_overlapping(pgjq.schedule);
drop function if exists pgjq.tick_name(timestamptz);
drop function if exists pgjq.due_schedules(integer);
drop function if exists pgjq.delete_schedule(text);
drop function if exists pgjq.resume_schedule(text);
drop function if exists pgjq.pause_schedule(text, boolean);
drop function if exists pgjq.create_schedule(
    text, text, jsonb, text, double precision, text, timestamptz, timestamptz, text, text, double precision,
    double precision, jsonb
);
drop function if exists pgjq.wake_schedules();
drop table if exists pgjq.schedule_tick, pgjq.schedule;
drop function if exists pgjq.scale(text, double precision);
drop function if exists pgjq.mean_run_seconds(integer);
drop function if exists pgjq.totals();
drop function if exists pgjq.record_totals();
drop function if exists pgjq.endings_between(timestamptz, timestamptz);
drop function if exists pgjq.add_stalls(text[]);
drop function if exists pgjq.add_totals(integer[], text[], text[], bigint[]);
drop table if exists pgjq.total, pgjq.counted;
drop function if exists pgjq.end_action(bigint, bigint);
drop function if exists pgjq.begin_action(text, text, text, text[]);
drop function if exists pgjq.record_minutes();
drop function if exists pgjq.describe_jobs(integer[], bigint[]);
drop function if exists pgjq.error_place(text);
drop table if exists pgjq.minute, pgjq.audit;
drop view if exists pgjq.attempts;
drop view if exists pgjq.backlog, pgjq.throughput, pgjq.running, pgjq.stalled, pgjq.failing, pgjq.failed;
drop view if exists pgjq.blocked_keys, pgjq.workers, pgjq.leaders, pgjq.table_health, pgjq.snapshots, pgjq.lock_waits;
drop function if exists
pgjq.drop_old_stages, pgjq.release_running, pgjq.reschedule_job,
pgjq.retry_job, pgjq.retry_jobs, pgjq.get_jobs, pgjq.get_attempts, pgjq.error_excerpt,
pgjq.count_ready,
pgjq.add_staged_rows, pgjq.publish_staged, pgjq.lock_bulk_write, pgjq.enqueue_staged, pgjq.commit_write,
pgjq.check_stages,
pgjq.quarantine_staged,
pgjq.close_write, pgjq.open_write, pgjq.remove_orphan_bodies,
pgjq.add_bodies, pgjq.insert_bodies_statement, pgjq.staged_task, pgjq.staged_rows_query, pgjq.drop_stages,
pgjq.create_stage,
pgjq.stage_pages, pgjq.stages, pgjq.record_queue_stats, pgjq.delete_queue, pgjq.update_queue, pgjq.create_queue,
pgjq.create_partitions, pgjq.schema_name, pgjq.prune_workers, pgjq.prune_waiting, pgjq.prune_ended, pgjq.delete_jobs,
pgjq.cancel_jobs, pgjq.fail_invalid_jobs, pgjq.find_row_error, pgjq.redrive, pgjq.copy_dead_letters, pgjq.reap,
pgjq.publish_stalls, pgjq.judge_stalled,
pgjq.save_checkpoint, pgjq.find_settled, pgjq.release_jobs, pgjq.settle, pgjq.record_ended_runs,
pgjq.trim_attempts, pgjq.find_policy_slots,
pgjq.delete_bodies, pgjq.end_jobs, pgjq.unblock_forgotten_keys, pgjq.unblock_key_of_job, pgjq.unblock_keys,
pgjq.block_jobs, pgjq.pick_serial, pgjq.claim_serial, pgjq.find_claimed, pgjq.claim,
pgjq.claim_planned, pgjq.seconds_until_work, pgjq.promote, pgjq.enqueue,
pgjq.enqueue_jobs, pgjq.enqueue_job, pgjq.delete_old_reservations, pgjq.reserve_numbers, pgjq.add_limited_job,
pgjq.add_taken_jobs, pgjq.insert_jobs_that_differ, pgjq.add_jobs, pgjq.take_time_slot, pgjq.free_id,
pgjq.remove_orphan_body, pgjq.job_settings,
pgjq.job_options, pgjq.retry_delay, pgjq.find_invalid_jobs, pgjq.check_definition, pgjq.is_valid_job,
pgjq.valid_task_name, pgjq.are_valid_headers,
pgjq.are_valid_options, pgjq.get_or_create_queue, pgjq.lock_referenced_queue, pgjq.lock_queue_row,
pgjq.wait_for_queue_lock, pgjq.lock_queue, pgjq.notify_waiters_of_jobs, pgjq.notify_waiters, pgjq.end_notification,
pgjq.mark_awaited, pgjq.job_state, pgjq.publish_states, pgjq.publish, pgjq.notification_pages, pgjq.event,
pgjq.has_subscribers, pgjq.has_uncommitted_jobs, pgjq.wake, pgjq.must_wake;
drop view if exists pgjq.jobs;
drop type if exists pgjq.claimed_job;
drop table if exists pgjq.bulk_body, pgjq.bulk_write, pgjq.quarantine, pgjq.reservation;
drop table if exists pgjq.registration;
drop table if exists
pgjq.time_slot, pgjq.attempt, pgjq.progress, pgjq.done, pgjq.job, pgjq.body, pgjq.worker, pgjq.queue;
drop sequence if exists pgjq.job_seq;
drop sequence if exists pgjq.queue_seq;
drop function if exists pgjq.policy_slot, pgjq.is_strict, pgjq.is_stately, pgjq.may_lack_slot, pgjq.is_serial,
pgjq.limits_queued, pgjq.limits_keys, pgjq.has_policy, pgjq.policy, pgjq.schema_version, pgjq.bounded_interval,
pgjq.max_seconds, pgjq.now;
