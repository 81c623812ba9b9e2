-- Inspect rights: what this login may do.
select
    coalesce(array_agg(p.proname::text) filter (where has_function_privilege(p.oid, 'execute')), '{}') as functions,
    has_column_privilege(regclass('pgjq.queue')::oid, 'paused', 'update') as pause,
    has_column_privilege(regclass('pgjq.body')::oid, 'payload', 'select') as content,
    has_table_privilege(regclass('pgjq.audit')::oid, 'select') as audit
from pg_proc as p
where
    p.pronamespace = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'))
    and p.proname in (
        'begin_action', 'cancel_jobs', 'delete_jobs', 'describe_jobs', 'get_attempts', 'get_jobs', 'redrive',
        'release_running', 'reschedule_job', 'retry_job', 'retry_jobs'
    )
