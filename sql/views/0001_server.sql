-- Views of the server for operators: tables, snapshots, locks.

-- The state of each table: its size, its dead rows, its last vacuum.
create view pgjq.table_health as
select
    c.relname as table_name, pg_table_size(c.oid) as table_bytes, pg_indexes_size(c.oid) as index_bytes,
    s.n_live_tup as live_rows, s.n_dead_tup as dead_rows,
    (pg_table_size(c.oid) + pg_indexes_size(c.oid)) / greatest(s.n_live_tup, 1) as bytes_per_live_row,
    greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at, s.vacuum_count + s.autovacuum_count as vacuums,
    greatest(s.last_analyze, s.last_autoanalyze) as analysed_at, age(c.relfrozenxid) as frozen_age,
    v.phase as vacuum_now
from pg_class as c
inner join pg_stat_all_tables as s on c.oid = s.relid
left join pg_stat_progress_vacuum as v on c.oid = v.relid
where
    c.relkind = 'r'
    and c.relnamespace = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'));

-- What keeps vacuum from removing dead rows, the oldest first: a session, a prepared transaction or a replication slot.
create view pgjq.snapshots as
select
    'session' as kind, a.pid::text as name, a.usename as login, a.application_name as application, a.state,
    age(a.backend_xmin) as transactions_behind, clock_timestamp() - a.xact_start as open_for
from pg_stat_activity as a
where a.backend_xmin is not null and a.pid <> pg_backend_pid()
union all
select 'prepared transaction', p.gid, p.owner, null, null, age(p.transaction), clock_timestamp() - p.prepared
from pg_prepared_xacts as p
where p.database = current_database()
union all
select
    'replication slot', r.slot_name, null, null, case when r.active then 'active' else 'inactive' end,
    greatest(age(r.xmin), age(r.catalog_xmin)), null
from pg_replication_slots as r
where r.xmin is not null or r.catalog_xmin is not null;

-- Sessions that wait for a lock in this database, and the sessions that block them.
create view pgjq.lock_waits as
select
    l.pid, w.application_name as application, l.locktype as lock_type, l.mode, l.relation::regclass as table_name,
    clock_timestamp() - l.waitstart as waiting_for, b.pid as blocked_by, h.application_name as blocker,
    h.state as blocker_state, clock_timestamp() - h.xact_start as blocker_open_for, left(w.query, 80) as query,
    left(h.query, 80) as blocker_query
from pg_locks as l
cross join lateral unnest(pg_blocking_pids(l.pid)) as b (pid)
left join pg_stat_activity as w on l.pid = w.pid
left join pg_stat_activity as h on b.pid = h.pid
where
    not l.granted
    and (
        l.database is null or l.database = (select d.oid from pg_database as d where d.datname = current_database())
    );
