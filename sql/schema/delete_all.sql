-- Delete every job, queue, schedule and worker, and keep the schema: what `manage.py flush` of Django runs.
do $$
declare
    own record;
begin
    update pgjq.queue set options = options - 'dead_letter';
    for own in select q.name from pgjq.queue as q where q.id < 0 loop
        perform pgjq.delete_queue(own.name);
    end loop;
end $$;
delete from pgjq.schedule;
delete from pgjq.job;
delete from pgjq.done;
delete from pgjq.progress;
delete from pgjq.attempt;
delete from pgjq.body;
delete from pgjq.time_slot;
delete from pgjq.bulk_write;
delete from pgjq.bulk_body;
delete from pgjq.quarantine;
delete from pgjq.job_event;
delete from pgjq.reservation;
delete from pgjq.registration;
delete from pgjq.minute;
delete from pgjq.total;
update pgjq.counted set upto = '-infinity';
delete from pgjq.audit;
delete from pgjq.worker;
delete from pgjq.queue;
