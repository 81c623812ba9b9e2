-- Undo revision 0001: drop every job, record and function of pgjq in this schema. The schema itself stays.
drop view if exists pgjq.schedules;
drop function if exists pgjq.tick(jsonb);
drop function if exists pgjq.apply_plan(pgjq.schedule, jsonb, text, timestamptz, text, jsonb);
drop function if exists pgjq.record_ticks(pgjq.schedule, jsonb);
drop function if exists pgjq.make_run(pgjq.schedule, text, timestamptz, bigint);
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
drop view if exists pgjq.backlog, pgjq.throughput, pgjq.running, pgjq.stalled, pgjq.failing, pgjq.failed;
drop view if exists pgjq.blocked_keys, pgjq.workers, pgjq.leaders, pgjq.table_health, pgjq.snapshots, pgjq.waits;
drop function if exists pgjq.error_excerpt(text, text);
drop function if exists pgjq.count_ready(integer, integer);
drop function if exists pgjq.retry_job(text, text);
drop function if exists pgjq.get_jobs(text, text[]);
drop view if exists pgjq.jobs;
select pgjq.drop_old_stages(-3600);
drop function if exists pgjq.enqueue_staged(text, integer, timestamptz, jsonb, text[], bigint, boolean);
drop function if exists pgjq.add_bodies(text, bigint, integer, timestamptz, jsonb, text[], boolean);
drop function if exists pgjq.insert_bodies_statement(text);
drop function if exists pgjq.staged_rows_query(text[], integer, integer);
drop function if exists pgjq.close_write(text, bigint, text[], bigint, bigint);
drop function if exists pgjq.open_write(text, text, bigint);
drop function if exists pgjq.drop_old_stages(double precision);
drop function if exists pgjq.remove_orphan_bodies(integer);
drop function if exists pgjq.drop_stages(text[]);
drop function if exists pgjq.staged_task(json);
drop function if exists pgjq.create_stage(text);
drop function if exists pgjq.stage_pages(text[]);
drop function if exists pgjq.stages();
drop function if exists pgjq.schema_name();
drop function if exists pgjq.record_queue_stats(boolean);
drop function if exists pgjq.delete_queue(text);
drop function if exists pgjq.update_queue(text, jsonb);
drop function if exists pgjq.check_definition(jsonb);
drop function if exists pgjq.lock_referenced_queue(text);
drop function if exists pgjq.create_partitions(integer);
drop function if exists pgjq.create_queue(text, integer, boolean, integer, jsonb);
drop function if exists pgjq.reap(integer, double precision);
drop function if exists pgjq.fail_invalid_jobs(text[]);
drop function if exists pgjq.fail_job(pgjq.job, text, text, text);
drop function if exists pgjq.find_row_error(pgjq.job, jsonb);
drop function if exists pgjq.redrive(text, integer, text);
drop function if exists pgjq.copy_dead_letters(integer[], bigint[]);
drop function if exists pgjq.prune_ended(integer);
drop function if exists pgjq.prune_waiting(integer);
drop function if exists pgjq.prune_workers();
drop function if exists pgjq.retry_jobs(text, text[]);
drop function if exists pgjq.delete_jobs(text, text[]);
drop function if exists pgjq.cancel_jobs(text, text[]);
drop function if exists pgjq.enqueue(
    text, jsonb, text, integer, timestamptz, double precision, double precision, integer, text, double precision,
    boolean, text, jsonb
);
drop function if exists pgjq.enqueue_job(text, text, bytea, jsonb);
drop function if exists pgjq.enqueue_jobs(text, text[], bytea[], jsonb, jsonb[], bigint[], boolean);
drop function if exists pgjq.reserve_numbers(text, integer, boolean);
drop function if exists pgjq.delete_old_reservations();
drop function if exists pgjq.add_jobs(text, text[], bytea[], jsonb, jsonb[], bigint[]);
drop function if exists pgjq.add_limited_job(text, integer, bigint, text, bytea, jsonb);
drop function if exists pgjq.find_invalid_jobs(integer, jsonb, jsonb[], text[]);
drop function if exists pgjq.take_time_slot(integer, text, double precision, boolean, bigint);
drop function if exists pgjq.free_id(integer, text, boolean);
drop function if exists pgjq.remove_orphan_body(integer, bigint);
drop function if exists pgjq.get_or_create_queue(text);
drop function if exists pgjq.lock_queue(text);
drop function if exists pgjq.wait_for_queue_lock(text);
drop function if exists pgjq.lock_queue_row(text);
drop function if exists pgjq.save_checkpoint(integer, bigint, integer, bytea);
drop function if exists pgjq.find_settled(integer[], bigint[], integer[], text[]);
drop function if exists pgjq.settle(
    integer[], bigint[], integer[], smallint[], bytea[], text[], double precision[], text
);
drop function if exists pgjq.find_policy_slots(integer[], bigint[], integer[], smallint[], text[], boolean);
drop function if exists pgjq.claim(
    text[], integer, integer, double precision, double precision, integer, boolean, bigint, tid[]
);
drop function if exists pgjq.find_claimed(bigint);
drop function if exists pgjq.pick_serial(integer, integer);
drop function if exists pgjq.unblock_forgotten_keys();
drop function if exists pgjq.unblock_key_of_job(integer, bigint);
drop function if exists pgjq.unblock_keys(integer[], text[]);
drop function if exists pgjq.promote();
drop function if exists pgjq.publish_states(integer[], bigint[], smallint[], smallint[]);
drop function if exists pgjq.mark_awaited(text, text);
drop function if exists pgjq.job_state(text, text[], bigint[]);
drop function if exists pgjq.notify_waiters_of_jobs(integer[], bigint[], smallint[]);
drop function if exists pgjq.notify_waiters(text[]);
drop function if exists pgjq.end_notification(text, text, text);
drop function if exists pgjq.publish(text[]);
drop function if exists pgjq.notification_pages(text[]);
drop function if exists pgjq.event(text, text, text, integer, integer, text, text, text);
drop function if exists pgjq.has_subscribers();
drop function if exists pgjq.has_uncommitted_jobs(text[]);
drop function if exists pgjq.wake(text);
drop function if exists pgjq.retry_delay(jsonb, integer);
drop function if exists pgjq.is_valid_job(text, jsonb);
drop function if exists pgjq.valid_task_name(text);
drop function if exists pgjq.are_valid_headers(jsonb);
drop function if exists pgjq.are_valid_options(jsonb);
drop table if exists pgjq.bulk_body, pgjq.bulk_write, pgjq.reservation;
drop table if exists pgjq.registration;
drop table if exists pgjq.time_slot, pgjq.progress, pgjq.done, pgjq.job, pgjq.body, pgjq.worker, pgjq.queue;
drop sequence if exists pgjq.job_seq;
drop sequence if exists pgjq.queue_seq;
drop function if exists pgjq.policy_slot(integer, smallint);
drop function if exists pgjq.schema_version();
drop function if exists pgjq.bounded_interval(double precision);
drop function if exists pgjq.now();
