-- Doctor: the tables that change with every job. See the view table_health.
select
    t.table_name, t.live_rows, t.dead_rows, t.table_bytes + t.index_bytes as bytes, t.vacuumed_at,
    coalesce(
        (
            select o.option_value::boolean from pg_options_to_table(c.reloptions) as o
            where o.option_name = 'autovacuum_enabled'
        ), true
    ) as autovacuum
from pgjq.table_health as t
inner join pg_class as c
    on
        t.table_name = c.relname
        and c.relnamespace = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'))
inner join pg_inherits as i on c.oid = i.inhrelid
where i.inhparent = regclass('pgjq.job')::oid
order by t.table_name
