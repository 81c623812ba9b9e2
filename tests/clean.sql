-- What a test may have changed beside the rows: recorded events, and the clock.
select pgjq.record_events(false);
create or replace function pgjq.now() returns timestamptz
language sql stable parallel safe
return statement_timestamp();
