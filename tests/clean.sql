do $$
declare
    own record;
begin
    update pgjq.queue set options = options - 'dead_letter';
    for own in select name from pgjq.queue where id < 0 loop
        perform pgjq.delete_queue(own.name);
    end loop;
end $$;
delete from pgjq.schedule;
delete from pgjq.job;
delete from pgjq.done;
delete from pgjq.progress;
delete from pgjq.body;
delete from pgjq.time_slot;
delete from pgjq.bulk_write;
delete from pgjq.bulk_body;
delete from pgjq.reservation;
delete from pgjq.registration;
delete from pgjq.minute;
delete from pgjq.audit;
delete from pgjq.worker;
delete from pgjq.queue;
create or replace function pgjq.now() returns timestamptz
language sql stable parallel safe
return statement_timestamp();
