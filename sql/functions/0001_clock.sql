-- The clock that decides, and the version that code looks for.

-- The time of the statement, as the database sees it: every deadline is set and compared with this one function. It is
-- inlined, so it costs nothing; a test moves time by replacing it.
create function pgjq.now() returns timestamptz
language sql stable parallel safe
return statement_timestamp();

-- Raised by every migration that older code cannot live with.
create function pgjq.schema_version() returns integer
language sql immutable parallel safe
return 1;
