delete from pgjq.job;
delete from pgjq.done;
delete from pgjq.progress;
delete from pgjq.body;
delete from pgjq.worker;
delete from pgjq.queue;
create or replace function pgjq.now() returns timestamptz
language sql stable parallel safe
as $$ select statement_timestamp() $$;
