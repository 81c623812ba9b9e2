-- Take the schema's use back from its roles; what they had on tables and functions goes with those. The roles
-- themselves stay: they belong to the whole server, another database may use them, and so may the logins that are their
-- members.
do $$
declare
    given text;
begin
    foreach given in array array['pgjq_producer', 'pgjq_worker', 'pgjq_monitor', 'pgjq_admin'] loop
        if exists (select from pg_catalog.pg_roles as r where r.rolname = given) then
            execute format('revoke all on schema %I from %I', left('pgjq.', -1), given);
        end if;
    end loop;
end
$$;
