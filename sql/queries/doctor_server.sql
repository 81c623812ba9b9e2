-- Doctor: the server, this session, and what its login may do. Reads settings and statistics, no table of jobs.
select
    current_setting('server_version_num')::integer as version_number, current_setting('server_version') as version,
    pgjq.schema_version() as schema_version, pgjq.now() as now, current_setting('autovacuum')::boolean as autovacuum,
    (select count(*) from pg_stat_activity as a where a.backend_type = 'client backend') as connections,
    current_setting('max_connections')::integer as max_connections,
    pg_notification_queue_usage() as notification_queue, current_user as login,
    (select n.nspowner = u.oid or u.rolsuper) as owns_schema,
    array(
        select role from unnest(array['pgjq_producer', 'pgjq_worker', 'pgjq_monitor', 'pgjq_admin']) as w (role)
        where exists (select from pg_roles as r where r.rolname = w.role and pg_has_role(r.oid, 'member'))
    ) as member_of,
    array(
        select role from unnest(array['pgjq_producer', 'pgjq_worker', 'pgjq_monitor', 'pgjq_admin']) as w (role)
        where
            exists (
                select from pg_roles as r where r.rolname = w.role and has_schema_privilege(r.oid, n.oid, 'usage')
            )
    ) as roles,
    array(
        select distinct p.proname::text
        from pg_proc as p
        cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as g
        where p.pronamespace = n.oid and g.grantee = 0 and g.privilege_type = 'EXECUTE'
        order by 1
    ) as public_functions
from pg_namespace as n
cross join pg_roles as u
where
    n.oid = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'))
    and u.rolname = current_user
