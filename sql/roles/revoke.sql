-- Revoke the use of the schema from its roles; dropping the tables and functions removes the other rights. The roles
-- stay: they belong to the whole server, and other databases and their member logins may use them.
do $$
declare
    given text;
begin
    foreach given in array array['pgjq_producer', 'pgjq_worker', 'pgjq_monitor', 'pgjq_spark', 'pgjq_admin'] loop
        if exists (select from pg_catalog.pg_roles as r where r.rolname = given) then
            execute format('revoke all on schema %I from %I', left('pgjq.', -1), given);
        end if;
    end loop;
end
$$;
