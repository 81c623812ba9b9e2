-- The clock of all deadlines, and the version of the schema.

-- The time of the statement on the database: every deadline is set and compared with this function. It is inlined, so
-- it costs nothing; a test moves time by replacing it.
create function pgjq.now() returns timestamptz
language sql stable parallel safe
return statement_timestamp();

-- The longest duration, a century in seconds: as `LONGEST` in `pgjq/options.py`. Inlined like `pgjq.now`.
create function pgjq.max_seconds() returns double precision
language sql immutable parallel safe
return 3155760000;

-- A retention as an interval. Rows written by hand may hold any number: one out of bounds counts as the bound, so that
-- one such row fails no statement about many. Inlined like `pgjq.now`; the bound is `pgjq.max_seconds()`, as a number,
-- because inlining it as well took some 8 µs at each settlement.
create function pgjq.bounded_interval(seconds double precision) returns interval
language sql immutable parallel safe
return make_interval(secs => least(greatest(seconds, 0), 3155760000));

-- The version of the schema, raised by every revision: code of version n works on the schemas n and n + 1.
create function pgjq.schema_version() returns integer
language sql immutable parallel safe
return 1;
