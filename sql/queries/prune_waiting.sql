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

doomed as materialized (
    select d.queue_id, d.seq
    from unnest(array(select old.queue_id from old), array(select old.seq from old)) as d (queue_id, seq)
),

live as (
    delete from pgjq.job as j
    using doomed as d
    where j.seq = d.seq and j.queue_id = d.queue_id
),

notes as (
    delete from pgjq.progress as p
    using doomed as d
    where p.seq = d.seq and p.queue_id = d.queue_id
)

delete from pgjq.body as b
using doomed as d
where b.seq = d.seq and b.queue_id = d.queue_id
returning b.seq
