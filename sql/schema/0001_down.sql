-- Undo revision 0001: drop every job, record and function of pgjq in this schema. The schema itself stays.
drop view if exists pgjq.schedules;
drop function if exists pgjq.tick(jsonb);
drop function if exists pgjq.apply_plan(pgjq.schedule, jsonb, text, timestamptz, text, jsonb);
drop function if exists pgjq.record_ticks(pgjq.schedule, jsonb);
drop function if exists pgjq.make_run(pgjq.schedule, text, timestamptz, bigint);
drop function if exists pgjq.overlaps(pgjq.schedule);
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
drop function if exists pgjq.excerpt(text, text);
drop function if exists pgjq.count_ready(integer, integer);
drop function if exists pgjq.retry_job(text, text);
drop function if exists pgjq.get_jobs(text, text[]);
drop view if exists pgjq.jobs;
select pgjq.sweep_stages(-3600);
drop function if exists pgjq.enqueue_staged(text, integer, timestamptz, jsonb, text[], bigint, boolean);
drop function if exists pgjq.add_bodies(text, bigint, integer, timestamptz, jsonb, text[], boolean);
drop function if exists pgjq.adding_bodies(text);
drop function if exists pgjq.staged(text[], integer, integer);
drop function if exists pgjq.close_write(text, bigint, text[], bigint, bigint);
drop function if exists pgjq.open_write(text, text, bigint);
drop function if exists pgjq.sweep_stages(double precision);
drop function if exists pgjq.remove_leftovers(integer);
drop function if exists pgjq.drop_stages(text[]);
drop function if exists pgjq.create_stage(text);
drop function if exists pgjq.stage_pages(text[]);
drop function if exists pgjq.stages();
drop function if exists pgjq.home();
drop function if exists pgjq.observe(boolean);
drop function if exists pgjq.delete_queue(text);
drop function if exists pgjq.update_queue(text, jsonb);
drop function if exists pgjq.check_definition(jsonb);
drop function if exists pgjq.keep_queue(text);
drop function if exists pgjq.create_partitions(integer);
drop function if exists pgjq.create_queue(text, integer, boolean, integer, jsonb);
drop function if exists pgjq.reap(integer, double precision);
drop function if exists pgjq.set_aside(text[]);
drop function if exists pgjq.fail_job(pgjq.job, text, text, text);
drop function if exists pgjq.find_fault(pgjq.job, jsonb);
drop function if exists pgjq.redrive(text, integer, text);
drop function if exists pgjq.bury(integer[], bigint[]);
drop function if exists pgjq.prune_ended(integer);
drop function if exists pgjq.prune_waiting(integer);
drop function if exists pgjq.prune_workers();
drop function if exists pgjq.retry_jobs(text, text[]);
drop function if exists pgjq.delete_jobs(text, text[]);
drop function if exists pgjq.cancel_jobs(text, text[]);
drop function if exists pgjq.enqueue(
    text, jsonb, text, integer, timestamptz, double precision, double precision, integer, text, double precision,
    boolean, text
);
drop function if exists pgjq.enqueue_job(text, text, bytea, jsonb);
drop function if exists pgjq.enqueue_jobs(text, text[], bytea[], jsonb, jsonb[], bigint[], boolean);
drop function if exists pgjq.reserve(text, integer, boolean);
drop function if exists pgjq.forget_reserved();
drop function if exists pgjq.add_jobs(text, text[], bytea[], jsonb, jsonb[], bigint[]);
drop function if exists pgjq.enqueue_limited(text, integer, bigint, text, bytea, jsonb);
drop function if exists pgjq.find_wrong(integer, jsonb, jsonb[], text[]);
drop function if exists pgjq.take_slot(integer, text, double precision, boolean, bigint);
drop function if exists pgjq.free_id(integer, text, boolean);
drop function if exists pgjq.remove_leftover(integer, bigint);
drop function if exists pgjq.queue_id(text);
drop function if exists pgjq.enter(text);
drop function if exists pgjq.await_queue(text);
drop function if exists pgjq.enter_row(text);
drop function if exists pgjq.save_checkpoint(integer, bigint, integer, bytea);
drop function if exists pgjq.find_settled(integer[], bigint[], integer[], text[]);
drop function if exists pgjq.settle(
    integer[], bigint[], integer[], smallint[], bytea[], text[], double precision[], text
);
drop function if exists pgjq.find_places(integer[], bigint[], integer[], smallint[], text[], boolean);
drop function if exists pgjq.claim(
    text[], integer, integer, double precision, double precision, integer, boolean, bigint, tid[]
);
drop function if exists pgjq.find_claimed(bigint);
drop function if exists pgjq.choose(integer, integer);
drop function if exists pgjq.wake_forgotten();
drop function if exists pgjq.pass_on(integer, bigint);
drop function if exists pgjq.next_turn(integer[], text[]);
drop function if exists pgjq.promote();
drop function if exists pgjq.tell(integer[], bigint[], smallint[], smallint[]);
drop function if exists pgjq.want_answer(text, text);
drop function if exists pgjq.standing(text, text[], bigint[]);
drop function if exists pgjq.answer_jobs(integer[], bigint[], smallint[]);
drop function if exists pgjq.answer(text[]);
drop function if exists pgjq.ending(text, text, text);
drop function if exists pgjq.publish(text[]);
drop function if exists pgjq.pages(text[]);
drop function if exists pgjq.event(text, text, text, integer, integer, text, text);
drop function if exists pgjq.watched();
drop function if exists pgjq.has_uncommitted(text[]);
drop function if exists pgjq.wake(text);
drop function if exists pgjq.retry_delay(jsonb, integer);
drop function if exists pgjq.is_sound(text, jsonb);
drop function if exists pgjq.are_valid_options(jsonb);
drop table if exists pgjq.bulk_body, pgjq.bulk_write, pgjq.reserved;
drop table if exists pgjq.registration;
drop table if exists pgjq.slot, pgjq.progress, pgjq.done, pgjq.job, pgjq.body, pgjq.worker, pgjq.queue;
drop sequence if exists pgjq.job_seq;
drop sequence if exists pgjq.queue_seq;
drop function if exists pgjq.place(integer, smallint);
drop function if exists pgjq.schema_version();
drop function if exists pgjq.span(double precision);
drop function if exists pgjq.now();
