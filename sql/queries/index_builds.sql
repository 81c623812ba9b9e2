-- What is left to do until each partition has its index: of the parent's index :index, made with `on only`.
--
-- A row for each partition without an attached index, with the statements that build and attach one. `leftover` drops
-- an index that was not finished; `build` is null if only attaching is left. CREATE INDEX CONCURRENTLY cannot run in a
-- function, so the caller runs them, one after the other, outside of a transaction.
with partitions as (
    select
        i.indexrelid as parent, i.indisunique as is_unique, h.inhrelid as partition_id, n.nspname as schema_name,
        left(p.relname || '_' || x.relname, 63) as index_name,
        regexp_replace(pg_get_indexdef(i.indexrelid), '^.*? (USING )', '\1') as definition
    from pg_index as i
    inner join pg_class as x on i.indexrelid = x.oid
    inner join pg_inherits as h on i.indrelid = h.inhparent
    inner join pg_class as p on h.inhrelid = p.oid
    inner join pg_namespace as n on p.relnamespace = n.oid
    where
        i.indexrelid = :index::text::regclass
        and not exists (
            select from pg_inherits as a
            inner join pg_index as o on a.inhrelid = o.indexrelid
            where a.inhparent = i.indexrelid and o.indrelid = h.inhrelid
        )
),

found as (
    select p.*, o.indisvalid as is_valid
    from partitions as p
    left join pg_index as o on o.indexrelid = to_regclass(format('%I.%I', p.schema_name, p.index_name))
)

select
    case when not f.is_valid then format('drop index concurrently %I.%I', f.schema_name, f.index_name) end as leftover,
    case
        when not coalesce(f.is_valid, false) then format(
                'create %sindex concurrently %I on %s %s', case when f.is_unique then 'unique ' else '' end,
                f.index_name, f.partition_id::regclass, f.definition
            )
    end as build,
    format('alter index %s attach partition %I.%I', f.parent::regclass, f.schema_name, f.index_name) as attach
from found as f
