-- Which endings can no longer change: all of transactions before `xmin`. A transaction that began earlier and commits
-- later has a number from there on, however long it takes. Each server counts its own transactions, so the server's
-- identifier is returned, too.
--
-- A visible ending is of a transaction before `xmax`, unless another server assigned the number: `restored`.
-- Index: done_xid.
select
    (select c.system_identifier::text from pg_control_system() as c) as server,
    now.xmin, now.xmax, exists(select from pgjq.done as d where d.xid >= now.xmax) as restored
from (
    select
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax
) as now
