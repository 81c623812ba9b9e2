-- The oldest open transaction that has written or is prepared: in any database of the server, because all databases
-- share one transaction counter.
select t.holder, t.database, extract(epoch from clock_timestamp() - t.began)::double precision as seconds
from (
    select 'process ' || a.pid as holder, a.datname as database, a.xact_start as began, a.backend_xid as xid
    from pg_stat_activity as a
    where a.backend_xid is not null and a.pid <> pg_backend_pid()
    union all
    select 'prepared transaction ' || p.gid, p.database, p.prepared, p.transaction from pg_prepared_xacts as p
) as t
order by age(t.xid) desc
limit 1
