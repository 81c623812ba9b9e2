-- The clock that decides, and the version that code looks for.

-- The time of the statement, as the database sees it: every deadline is set and compared with this one function. It is
-- inlined, so it costs nothing; a test moves time by replacing it.
create function pgjq.now() returns timestamptz
language sql stable parallel safe
return statement_timestamp();

-- How long a record is kept, as an interval. Rows that were written by hand may hold anything: beyond its bounds a
-- number counts as the bound, so that one such row fails no statement about many. Inlined, as `pgjq.now` is.
create function pgjq.span(seconds double precision) returns interval
language sql immutable parallel safe
return make_interval(secs => least(greatest(seconds, 0), 3155760000));

-- Raised by every migration that older code cannot live with.
create function pgjq.schema_version() returns integer
language sql immutable parallel safe
return 1;
