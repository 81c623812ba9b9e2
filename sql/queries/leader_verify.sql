-- Verify leadership: the process that answers, and whether this very session still holds the lock.
select
    pg_backend_pid() as answering,
    exists (
        select from pg_locks as l
        where
            l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.granted and l.mode = 'ExclusiveLock'
            and l.database = (select d.oid from pg_database as d where d.datname = current_database())
            and l.classid::bigint = hashtext(:lock)::bigint & 4294967295
            and l.objid::bigint = hashtext(:role)::bigint & 4294967295
            and l.objsubid = 2
    ) and set_config('idle_session_timeout', :ttl, false) <> '' as holds
