-- Prune up to :limit jobs that waited longer than their retention without being run to an end.
--
-- Walks the live jobs in the order of their enqueueing and stops at the first :limit; those running are left alone.
-- Index: the primary key of job.
with old as materialized (
    select j.queue_id, j.seq
    from pgjq.job as j
    inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id
    where
        j.state <> 1
        and greatest(b.created_at, j.run_at)
        <= pgjq.now() - make_interval(
            secs => coalesce((b.options ->> 'retention_seconds')::double precision, :retention_seconds)
        )
    order by j.seq
    limit :limit for update of j skip locked
),

live as (
    delete from pgjq.job as j
    using old as o
    where j.seq = o.seq and j.queue_id = o.queue_id
),

notes as (
    delete from pgjq.progress as p
    using old as o
    where p.seq = o.seq and p.queue_id = o.queue_id
)

delete from pgjq.body as b
using old as o
where b.seq = o.seq and b.queue_id = o.queue_id
returning b.seq
