-- Job range: the range of the numbers of ended jobs and of all jobs, and the snapshot.
--
-- Index: the primary keys, their ends only.
select
    pg_snapshot_xmin(now.snapshot)::text::bigint as xmin, pg_snapshot_xmax(now.snapshot)::text::bigint as xmax,
    array(select r.xid::text::bigint from pg_snapshot_xip(now.snapshot) as r (xid)) as running,
    (select min(d.seq) from pgjq.done as d) as first_ended,
    (select max(d.seq) from pgjq.done as d) as last_ended,
    (select min(b.seq) from pgjq.body as b) as first_job,
    (select max(b.seq) from pgjq.body as b) as last_job
from (select pg_current_snapshot() as snapshot) as now
