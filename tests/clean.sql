-- What a test may have left beside the rows: a statement that its caller gave up, recorded events, a moved clock. They
-- are only changed if they have to be: writing them again costs more than all deletions.
select pg_terminate_backend(a.pid, 10000)
from pg_stat_activity as a
where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend' and a.state <> 'idle';
do $$
begin
    if pgjq.are_events_recorded() then
        perform pgjq.record_events(false);
    end if;
    if pg_get_function_sqlbody('pgjq.now'::regproc) is distinct from 'RETURN statement_timestamp()' then
        create or replace function pgjq.now() returns timestamptz
        language sql stable parallel safe
        return statement_timestamp();
    end if;
end $$;
