-- Doctor: the indexes of the schema, and whether PostgreSQL can use each.
select c.relname as index_name, i.indisvalid and i.indisready as valid
from pg_index as i
inner join pg_class as c on i.indexrelid = c.oid
where c.relnamespace = (select o.relnamespace from pg_class as o where o.oid = regclass('pgjq.queue'))
