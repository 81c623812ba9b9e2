-- What a test may have changed beside the rows: recorded events, and the clock. Both are only looked at if they are as
-- they should be: to write them again costs more than everything else here.
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
