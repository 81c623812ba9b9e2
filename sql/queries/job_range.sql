-- Job range: the range of the numbers of ended jobs or, with :alive, of all jobs; the table's pages; and the snapshot.
--
-- Index: the primary keys, their ends only.
select
    pg_snapshot_xmin(now.snapshot)::text::bigint as xmin, pg_snapshot_xmax(now.snapshot)::text::bigint as xmax,
    array(select r.xid::text::bigint from pg_snapshot_xip(now.snapshot) as r (xid)) as running,
    case when :alive then (select min(b.seq) from pgjq.body as b) else (select min(d.seq) from pgjq.done as d) end
        as first,
    case when :alive then (select max(b.seq) from pgjq.body as b) else (select max(d.seq) from pgjq.done as d) end
        as last,
    (
        select sum(pg_relation_size(t.relid)) / current_setting('block_size')::integer
        from pg_partition_tree(case when :alive then regclass('pgjq.body') else regclass('pgjq.done') end) as t
        where t.isleaf
    )::bigint as pages,
    exists(select from pgjq.queue as q where q.name = :queue::text) as has_queue
from (select pg_current_snapshot() as snapshot) as now
